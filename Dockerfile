# One image for both: the controller (the default), and the kernel-log reader of the dmesg DaemonSet.
#   docker build -t registry.example.com/konductor-like:0.1.0 .
ARG PYTHON=docker.io/library/python:3.13-slim

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv /opt/konductor-like
# What we depend on, by hash; first, because it changes least.
COPY requirements.lock requirements-build.lock ./
RUN /opt/konductor-like/bin/pip install --require-hashes --only-binary :all: -r requirements.lock
RUN pip install --require-hashes --only-binary :all: -r requirements-build.lock
# Ourselves, as the wheel that a release would be.
COPY pyproject.toml README.md LICENSE ./
COPY konductor_like konductor_like
COPY docs/runbooks docs/runbooks
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheel . \
 && /opt/konductor-like/bin/pip install --no-deps --no-index /wheel/*.whl
# The asyncio half of the Kubernetes client is never imported, and neither is pip; together 85 MB.
RUN rm -r /opt/konductor-like/lib/python3.*/site-packages/kubernetes/aio \
 && /opt/konductor-like/bin/pip uninstall --yes --quiet pip

FROM ${PYTHON}
LABEL org.opencontainers.image.title="konductor-like" \
      org.opencontainers.image.description="Taints Kubernetes nodes whose kernel says the GPU is broken" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/konductor-like /opt/konductor-like
ENV PATH=/opt/konductor-like/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Fails the build, and not the pod, if something is missing.
RUN konductor-like check-config >/dev/null && python -I -m konductor_like.kmsg --help >/dev/null
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["konductor-like"]
CMD ["run"]

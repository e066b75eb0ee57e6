"""What a machine needs before its faults count as repaired, and what meets a need."""

from __future__ import annotations

from konductor_like.model import MET_BY_REBOOT, Incident, IncidentState


def is_met_by_boot(incident: Incident, boot_id: str | None) -> bool:
    """Whether this boot of the Node meets the need of the incident, which nothing has met yet (rule 34).

    Only an active incident of an earlier boot counts: a held one ends with its boot, and a pending one is of
    a boot that may still come. A person's own taint has no need that a reboot meets.
    """
    return (
        incident.met_by is None
        and incident.state is IncidentState.ACTIVE
        and boot_id is not None
        and incident.last.boot_id not in (None, boot_id)
        and incident.needs in MET_BY_REBOOT
        and not incident.by_person
    )

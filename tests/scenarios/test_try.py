import time
import pytest
from tests.scenarios.words import *
from konductor_like.model import Role
from konductor_like.sandbox.fleet import make_fleet, make_node
from konductor_like.model import OPT_OUT_LABEL

def show(site, capsys, title, *cmds):
    out=[f"\n===== {title}", f"tainted={site.tainted} labels={site.labels} events={site.events}", {str(r): len(site.in_role(r)) for r in (None,*Role)}]
    p = site.cli("status")
    out += [l[:170] for l in p.lines[:14]]
    for c in cmds:
        p = site.cli(*c); out.append(f"$ {c} => {p.code}\n{p.out[:3500]}\n2> {p.err}")
    with capsys.disabled():
        for o in out: print(o)

def test_b(site_of, capsys):
    site = site_of(make_fleet(70)); site.hearts(); site.run(10)
    crash(site, gpus(64)); site.run(30)
    show(site, capsys, "b no hw", ["explain","node",gpu(3)])

def test_a_late_origin(site_of, capsys):
    site = site_of(make_fleet(70)); site.hearts(); site.run(10)
    site.kernel(gpu(17), LOST, at=0, late=8)
    crash(site, gpus(64), at=0.5); site.run(30)
    show(site, capsys, "a origin late")

def test_a_pods_first(site_of, capsys):
    site = site_of(make_fleet(70)); site.hearts(); site.run(10)
    site.kernel(gpu(17), LOST, at=0, late=40)
    crash(site, gpus(64), at=0.5, kernel_late=40); site.run(60)
    show(site, capsys, "a pods first, kernel 40 s late")

def test_a_pods_late(site_of, capsys):
    site = site_of(make_fleet(70)); site.hearts(); site.run(10)
    site.kernel(gpu(17), LOST, at=0)
    crash(site, gpus(64), at=0.5, pods_late=90); site.run(60)
    show(site, capsys, "a pods late, before they come")
    site.run(1300)
    show(site, capsys, "a pods late, after")

def test_a_restart(site_of, capsys):
    site = site_of(make_fleet(70)); site.hearts(); site.run(10)
    site.kernel(gpu(17), LOST, at=0)
    crash(site, gpus(64), at=0.5); site.run(3, 3); site.restart(2); site.run(30)
    show(site, capsys, "a restarted in the middle")

def test_origin_40s_after(site_of, capsys):
    site = site_of(make_fleet(70)); site.hearts(); site.run(10)
    crash(site, gpus(64), at=0.5); 
    site.kernel(gpu(17), LOST, at=45); site.run(80)
    show(site, capsys, "origin line 40 s after the collateral", ["explain","node",gpu(17)], ["explain","node",gpu(3)])

def test_origin_pod_silent(site_of, capsys):
    site = site_of(make_fleet(70)); site.hearts(); site.run(10)
    site.kernel(gpu(17), LOST, at=0)
    crash(site, [n for n in gpus(64) if n != gpu(17)], at=0.5); site.run(80)
    show(site, capsys, "origin's pod silent", ["explain","node",gpu(17)], ["explain","node",gpu(3)])

def test_c(site_of, capsys):
    site = site_of(racks(2,64)); site.hearts(); site.run(10)
    for n,name in enumerate(gpus(64)):
        site.kernel(name, REMAP_FATAL if n<6 else REMAP, at=0.01*n)
    site.kernel(gpu(40), LINK_DOWN, at=0.3)
    site.kernel(gpu(41), PEERS_LINK, at=0.3)
    site.run(30)
    show(site, capsys, "c rack", ["explain","node",gpu(3)], ["explain","node",gpu(40)],["explain","node",gpu(30)])

def test_d(site_of, capsys):
    site = site_of(racks(11,18)); site.hearts(); site.run(10)
    for n in range(77):
        site.kernel(gpu(n%11*18+n//11+1), SYMPTOMS[1], at=n/20)
    site.run(90)
    show(site, capsys, "d cancelled", ["explain","node",gpu(3)])

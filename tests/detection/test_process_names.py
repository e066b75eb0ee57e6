"""The name of a process, and a file that it maps, make no kernel line: anybody who runs a pod chooses them.

The kernel prints 15 bytes of the name in many messages, and the file's name when the process crashes. The
messages below are those that begin with the name, and others that contain it.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.catalog import load_catalog
from konductor_like.detection import Detector, find, packaged
from konductor_like.detection.why_not import is_unparsed
from konductor_like.model import Source

from ..catalog.user_files import read

OWN = "kmsg/1 boot=0b5d7c9e-1111-2222-3333-444455556666 seq=12 facility=0 priority=6 [  100.000000] "
XID = "NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus."
NAME_CHARS = 15
CRASHES = (
    "{name}[4711]: segfault at 0 ip 00007fe88cd2f003 sp 00007ffd9217db78 error 4 in {file}[3,7fe88cd2f+10]",
    "{name}[4711]: segfault at 0 ip 0 sp 0 error 4 in {file}[7fe88cd2f000+1000] likely on CPU 3",
    "{name}[4711] general protection ip:0 sp:0 error:0 in {file}[400000+1000]",
    "{name}[4711] trap invalid opcode ip:0 sp:0 error:0 in {file}[400000+1000]",
    "{name}[4711] bad frame in rt_sigreturn frame:0 ip:0 sp:0 orax:0 in {file}[400000+1000]",
    "{name}[4711]: unhandled exception: SP Alignment, ESR 0x00000000, in {file}[400000+1000]",
    "{name}[4711]: segfault (11) at 0 nip 0 lr 0 code 1 in {file}[400000+1000]",
)
OTHERS = (
    "{name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "{name}: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)",
    "{name} (4711): drop_caches: 3",
    "{name} (4711): /proc/4711/oom_adj is deprecated, please use /proc/4711/oom_score_adj instead.",
    "{name} (4711): Using mlock ulimits for SHM_HUGETLB is obsolete",
    "{name}: attempt to access beyond end of device",
    "{name} uses obsolete (PF_INET,SOCK_PACKET)",
    "{name}[4711] vsyscall attempted with vsyscall=none ip:0 cs:33 sp:0 ax:0 si:0 di:0",
    "{name}/4711: potentially unexpected fatal signal 11.",
    "traps: {name}[4711] general protection fault ip:0 sp:0 error:0 in {file}[0,400000+1000]",
    "Out of memory: Killed process 4711 ({name}) total-vm:52kB, anon-rss:0kB, UID:0 pgtables:44kB",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),mems_allowed=0,task={name},pid=4711,uid=0",
    "oom_reaper: reaped process 4711 ({name}), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "INFO: task {name}:4711 blocked for more than 122 seconds.",
    "CPU: 3 PID: 4711 Comm: {name} Tainted: P           OE      6.8.0-41-generic #41-Ubuntu",
    "warning: `{name}' uses 32-bit capabilities (legacy support in use)",
    "x86/split lock detection: #AC: {name}/4711 took a split_lock trap at address: 0x401234",
    "futex_wake_op: {name} tries to shift op by -1; fix this program",
)
NAMES = (
    "NVRM: Xid (PCI:",
    "NVRM: Xid (3d0)",
    "Xid (3d:00): 79",
    "Xid (PCI:3d:00)",
    "SXid (PCI:0000:",
    "Xid (",
    "Xid (switch): 7",
)

EXAMPLES = [example for rule in load_catalog().kernel_rules for example in rule.examples]
PATTERNS = [pattern.pattern for rule in load_catalog().kernel_rules for pattern in rule.patterns]
RULES = """
rules:
  - id: site.power
    source: kernel
    severity: fatal
    title: A board has no power
    advice: Look at it.
    contains: [power is lost]
    patterns: ['NVRM: .{1,200}power is lost']
    match: ['NVRM: board 3: power is lost']
    no_match: ['NVRM: power is back']
  - id: site.crash
    source: kernel
    severity: suspect
    title: The trainer crashed in b.so
    advice: Look at it.
    contains: [b.so]
    patterns: ['pt_main_thread\\[\\d+\\]: segfault at .{0,200} in b\\.so']
    match: ['pt_main_thread[4711]: segfault at 0 ip 0 sp 0 error 4 in b.so[400000+1000]']
    no_match: ['pt_main_thread[4711]: exits']
"""


@pytest.mark.parametrize("message", [*CRASHES, *OTHERS])
@pytest.mark.parametrize("name", NAMES)
def test_a_process_that_is_named_like_an_xid_is_no_fault_and_raises_no_alert(message: str, name: str) -> None:
    for file in (XID, f"x\\x0a{XID}"):  # /dev/kmsg prints a newline so
        line = OWN + message.format(name=name, file=file)

        assert find(line, Source.KERNEL) is None
        assert not is_unparsed(packaged().catalog, line)


def test_no_example_of_a_rule_can_be_put_together_from_a_name_and_a_file() -> None:
    forged = {
        message.format(name=line[:cut], file=line[cut:])
        for line in EXAMPLES
        for cut in range(NAME_CHARS + 1)
        for message in (*CRASHES, *OTHERS)
    }

    assert {line for line in forged if _is_a_fault(line)} == set()


@given(
    st.sampled_from(PATTERNS).flatmap(lambda pattern: st.from_regex(re.compile(pattern, re.ASCII))),
    st.integers(0, NAME_CHARS),
    st.sampled_from([*CRASHES, *OTHERS]),
)
def test_nothing_that_fits_a_pattern_can_be_put_together_from_a_name_and_a_file(
    line: str, cut: int, message: str
) -> None:
    forged = OWN + message.format(name=line[:cut].replace("\0", ""), file=line[cut:])

    assert not _is_a_fault(forged)


@pytest.mark.parametrize("name", ["trainer", "ray::IDLE", "python3 train.p", "[x]: NVRM: a", ""])
def test_a_crash_inside_nccl_is_found_under_any_name(name: str) -> None:
    found = find(OWN + CRASHES[0].format(name=name, file="libnccl.so.2"), Source.KERNEL)

    assert found is not None
    assert found.rule == "nccl.crash"


def test_a_wide_rule_of_a_user_does_not_match_what_a_crashed_process_chose() -> None:
    detector = Detector(read(RULES).catalog)

    assert detector.find(OWN + "NVRM: board 3: power is lost", Source.KERNEL) is not None
    forged = [OWN + crash.format(name="NVRM: a", file="power is lost") for crash in CRASHES]
    assert [line for line in forged if detector.find(line, Source.KERNEL)] == []


def test_a_rule_of_a_user_may_name_a_process() -> None:
    found = Detector(read(RULES).catalog).find(
        OWN + CRASHES[0].format(name="pt_main_thread", file="b.so"), Source.KERNEL
    )

    assert found is not None
    assert found.rule == "site.crash"
    assert "pt_main_thread[4711]: segfault" in found.text


def _is_a_fault(line: str) -> bool:
    """Whether detection finds more in a line than that a process crashed inside NCCL."""
    found = find(line, Source.KERNEL)
    return found is not None and found.rule != "nccl.crash"

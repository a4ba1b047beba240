"""`tilec.forked`: pieces of work in copies of a process. Each case is a process of its own, without the threads of the test runner."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(
    not hasattr(__import__("os"), "fork"), reason="would copy processes, which this system does not"
)


def script(text: str) -> str:
    """What a program prints that has `forked` and `os`."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os\nfrom tilec.forked import forked\n" + textwrap.dedent(text),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout


def test_results_come_in_order_whoever_made_them() -> None:
    assert script("""
        print(forked(5000, lambda n: n * n, 3) == [n * n for n in range(5000)])
        # each waits until all three have drawn, so that all work
        import time
        seen, told = os.pipe()
        def work(n):
            os.write(told, b".")
            time.sleep(0.2)
            return os.getpid()
        found = forked(3, work, 3)
        print(len(set(found)), os.getpid() in found)
    """) == "True\n3 True\n"  # fmt: skip


def test_results_larger_than_a_pipe() -> None:
    assert script("""
        found = forked(6, lambda n: bytes([n]) * 300_000, 3)
        print([(len(x), x[0]) for x in found] == [(300_000, n) for n in range(6)])
    """) == "True\n"  # fmt: skip


def test_common_objects_stay_what_they_are() -> None:
    assert script("""
        class Thing: pass
        common = [Thing(), Thing()]
        found = forked(8, lambda n: (n, common[n % 2], [common[0]]), 2, common)
        print(all(a is common[n % 2] and b[0] is common[0] for n, a, b in found))
    """) == "True\n"  # fmt: skip


@pytest.mark.parametrize("how", ["raise ValueError", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_what_fails_in_a_copy_is_none(how: str) -> None:
    assert script(f"""
        parent = os.getpid()
        def work(n):
            if os.getpid() != parent:
                {how}
            return n
        found = forked(20, work, 3)
        print(all(x in (n, None) for n, x in enumerate(found)), 0 < len(found) == 20)
    """) == "True True\n"  # fmt: skip


def test_what_raises_here_is_none() -> None:
    assert script("""
        def work(n):
            if n % 2: raise ValueError
            return n
        print(forked(6, work, 2))
    """) == "[0, None, 2, None, 4, None]\n"  # fmt: skip


def test_an_interrupt_ends_the_copies() -> None:
    assert script("""
        import time
        parent, pids = os.getpid(), os.pipe()
        def work(n):
            if os.getpid() != parent:
                os.write(pids[1], b"%d " % os.getpid())
                time.sleep(60)
            time.sleep(0.3)
            raise KeyboardInterrupt
        try:
            forked(3, work, 3)
        except KeyboardInterrupt:
            print("interrupted")
        for pid in os.read(pids[0], 100).split():
            try:
                os.kill(int(pid), 0)
                print("there")
            except ProcessLookupError:
                print("gone")
    """) == "interrupted\ngone\ngone\n"  # fmt: skip


def test_a_system_that_does_not_copy_does_nothing() -> None:
    assert script("""
        del os.fork
        print(forked(3, lambda n: n, 2))
    """) == "[None, None, None]\n"  # fmt: skip


def test_a_system_without_room_works_alone() -> None:
    assert script("""
        def fork(): raise OSError
        os.fork = fork
        print(forked(3, lambda n: n, 2))
    """) == "[0, 1, 2]\n"  # fmt: skip

"""Hostile rewards, by name. Each returns normally when its attack succeeds and raises where it is refused.

They stand below the static gate on purpose: what is tried here is the confinement of the process, as if the gate had
let everything pass. `{...}` is filled with the addresses and paths of the test's own victims.
"""

from dataclasses import dataclass

from sandboxes.base import Failure

FRAME = (
    "import ctypes, os, signal, socket, sys, time, torch\ndef compute_reward(angle):\n{body}\n    return angle, {{}}\n"
)
_LIBC = "libc = ctypes.CDLL(None, use_errno=True)\n"
_CHECKED = "if result < 0: raise OSError(ctypes.get_errno(), 'refused')"


@dataclass(frozen=True)
class Attack:
    """`since`: the level from which the attack must fail. `kinds`: what it may be recorded as there.

    `name_stops`: root gives workers user names of their own, and that already stops it; below `since` and without
    root it could hit this very test and is not tried.
    """

    body: str
    since: str = "process"
    kinds: tuple[Failure, ...] = tuple(Failure)
    name_stops: bool = False

    def source(self, **victims: object) -> str:
        """The whole reward."""
        body = self.body
        for name, value in victims.items():
            body = body.replace("{" + name + "}", repr(value))
        return FRAME.format(body="\n".join("    " + line for line in body.strip().splitlines()))


KILLED = (Failure.VIOLATION,)
DIED = (Failure.CRASHED,)
RAISED = (Failure.RAISED,)
EXHAUSTED = (*RAISED, *DIED, Failure.TIMEOUT)  # whichever bound is met first


def _syscall(call: str) -> str:
    return f"{_LIBC}result = libc.{call}\n{_CHECKED}"


ATTACKS = {
    # --- the machine's time, memory and processes
    "endless loop": Attack("while True: pass", kinds=(Failure.TIMEOUT,)),
    "endless sleep": Attack("time.sleep(1e6)", kinds=(Failure.TIMEOUT,)),
    "blocked signals": Attack(
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass", kinds=(Failure.TIMEOUT,)
    ),
    "huge tensor": Attack("torch.zeros(1 << 40)", kinds=RAISED),
    "exponential allocation": Attack("x = [0]\nwhile True: x = x + x", kinds=EXHAUSTED),
    "touched pages": Attack("held = []\nwhile True: held.append(torch.ones(1 << 26))", kinds=EXHAUSTED),
    "deep recursion": Attack("sys.setrecursionlimit(10**9)\ndef f(): f()\nf()", kinds=EXHAUSTED),
    "fork bomb": Attack("for _ in range(100): os.fork()"),
    "double fork": Attack(
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1e6)\n    os._exit(0)"
    ),
    "a program": Attack("os.posix_spawn('/bin/true', ['true'], {})"),
    "a thread": Attack("import threading\nthreading.Thread(target=print).start()"),
    "exit 0": Attack("os._exit(0)", kinds=DIED),
    "exit by exception": Attack("raise SystemExit(0)", kinds=DIED),
    "segmentation fault": Attack("ctypes.string_at(0)", kinds=DIED),
    "abort": Attack("os.abort()", kinds=DIED),
    # --- other processes
    "signal to the parent": Attack("os.kill(os.getppid(), 9)", "seccomp", KILLED, name_stops=True),
    "signal to the trainer": Attack("os.kill({trainer}, 9)", "seccomp", KILLED, name_stops=True),
    "signal to everybody": Attack(
        "os.kill(-1, 9)\nraise OSError('the kernel does not say whom it hit; neighbours show it')",
        "seccomp",
        KILLED,
        name_stops=True,
    ),
    "a thread's signal to the parent": Attack(
        _syscall("syscall(234, os.getppid(), os.getppid(), 9)"), "seccomp", KILLED, name_stops=True
    ),
    "the parent's environment": Attack("open(f'/proc/{os.getppid()}/environ', 'rb').read()"),
    "the trainer's environment": Attack(
        "open('/proc/%d/environ' % {trainer}, 'rb').read()", "seccomp", name_stops=True
    ),
    "the trainer's memory": Attack("open('/proc/%d/mem' % {trainer}, 'rb')", "seccomp", name_stops=True),
    "the trainer's descriptors": Attack("os.listdir('/proc/%d/fd' % {trainer})", "seccomp", name_stops=True),
    "ptrace": Attack(_syscall("ptrace(16, os.getppid(), 0, 0)")),
    "reading across processes": Attack(
        _LIBC
        + "b = ctypes.create_string_buffer(8)\n"
        + "local = (ctypes.c_void_p * 2)(ctypes.addressof(b), 8)\nremote = (ctypes.c_void_p * 2)(id(b), 8)\n"
        + f"result = libc.process_vm_readv({{trainer}}, local, 1, remote, 1, 0)\n{_CHECKED}"
    ),
    "a handle on the parent": Attack("os.pidfd_open(os.getppid())", "seccomp", KILLED),
    # --- files
    "reading a file": Attack("open({file}).read()", "seccomp"),
    "reading a private file": Attack("open({private}).read()", "seccomp", name_stops=True),
    "reading through a link": Attack("open({link}).read()", "seccomp"),
    "reading the metric": Attack("open({metric}).read()", "seccomp"),
    "listing a folder": Attack("os.listdir({folder})", "seccomp"),
    "a file's data on disk": Attack("with open({folder} + '/new', 'wb') as f: f.write(b'x' * 4096)"),
    "disk fill": Attack("f = open({folder} + '/full', 'wb')\nwhile True: f.write(b'x' * 65536); f.flush()"),
    "deleting a file": Attack("os.unlink({file})", "seccomp", name_stops=True),
    "making a link": Attack("os.symlink('/etc/passwd', {folder} + '/made')", "seccomp"),
    "making a folder": Attack("os.mkdir({folder} + '/made')", "seccomp"),
    "changing the working folder": Attack("os.chdir({folder})", "seccomp"),
    "out of the root": Attack("os.chroot('/')"),
    "mounting": Attack(_syscall("mount(b'none', b'/', b'tmpfs', 0, None)")),
    # --- the network
    "TCP": Attack("socket.socket().connect(('127.0.0.1', {tcp}))", "seccomp", KILLED),
    "TCP over IPv6": Attack("socket.socket(socket.AF_INET6)", "seccomp", KILLED),
    "UDP": Attack("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))", "seccomp"),
    "a unix socket": Attack("socket.socket(socket.AF_UNIX).connect({unix})", "seccomp", KILLED),
    "an abstract socket": Attack("socket.socket(socket.AF_UNIX).connect({abstract})", "seccomp", KILLED),
    "listening": Attack("s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()", "seccomp", KILLED),
    "netlink": Attack("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "seccomp", KILLED),
    # --- the kernel
    "System V shared memory": Attack(_syscall("shmget(0, 4096, 0o1600)"), "seccomp", KILLED),
    "a message queue": Attack(_syscall("mq_open(b'/synth', 0o102, 0o600, None)"), "seccomp"),
    "io_uring": Attack(
        _LIBC + "b = ctypes.create_string_buffer(120)\nresult = libc.syscall(425, 4, b)\n" + _CHECKED, "seccomp"
    ),
    "new namespaces": Attack(_syscall("unshare(0x10000000)"), "seccomp", KILLED),
    "becoming root": Attack("os.setuid(0)"),
    "a second set of call numbers": Attack(_syscall("syscall(0x40000000 + 39)"), "process"),
    # --- the conversation with the trainer
    "shrinking the buffer": Attack(
        "for fd in range(3, 64):\n    try: os.ftruncate(fd, 0)\n    except OSError: continue\n    return angle, {}\n"
        "raise OSError('refused')"
    ),
    "huge message": Attack(
        "for fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 65536)\n    except OSError: pass"
    ),
    "malformed message": Attack(
        "for fd in range(3, 64):\n    try: os.write(fd, b'\\x00\\x00\\x00\\x04nope')\n    except OSError: pass"
    ),
    "deep message": Attack(
        "data = b'[' * 60000\n"
        "for fd in range(3, 64):\n    try: os.write(fd, len(data).to_bytes(4, 'big') + data)\n    except OSError: pass"
    ),
    "forged result": Attack(
        'data = b\'{"ok": true, "components": [1, 2]}\'\n'
        "for fd in range(3, 64):\n    try: os.write(fd, len(data).to_bytes(4, 'big') + data)\n    except OSError: pass"
    ),
    "closed connection": Attack("os.closerange(3, 64)"),
    # --- numbers
    "NaN": Attack("angle = angle * float('nan')", kinds=(Failure.NON_FINITE,)),
    "infinity": Attack("angle = angle + float('inf')", kinds=(Failure.NON_FINITE,)),
    "NaN through patched torch": Attack(
        "torch.isfinite = lambda x: torch.ones_like(x, dtype=torch.bool)\nangle = angle * float('nan')",
        kinds=(Failure.NON_FINITE,),
    ),
    "a list for a tensor": Attack("return [0.0] * 500, {}", kinds=(Failure.DTYPE,)),
    "nothing": Attack("return", kinds=(Failure.RETURN,)),
}

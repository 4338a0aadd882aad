"""Who may open the files that memlab writes: the umask says, or the file that was there."""

import os
import pickle
import stat
import struct
import sys

import pytest
import warm
from segments import BASE, MIB, block, segment

from memlab import _core
from memlab._export import export

UMASKS = (0, 0o002, 0o022, 0o077)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def umask():
    """Sets the umask of this process, of one thread here."""
    before = os.umask(0)
    yield os.umask
    os.umask(before)


def recording():
    data = {
        "segments": [segment(BASE, [block(BASE, 2 * MIB, 0, "inactive")])],
        "device_traces": [[]],
    }
    return _core.Recording.from_bytes(pickle.dumps(data, 4))


@pytest.mark.parametrize("how", ["device", "pipe"])
def test_what_is_no_file_is_refused_in_words(how, tmp_path):
    """The system's own word is "Invalid argument"."""
    path = "/dev/null" if how == "device" else str(tmp_path / "pipe")
    if how == "pipe":
        os.mkfifo(path)
    with pytest.raises(OSError, match="it is a device or a pipe, .*: name a file") as told:
        _core.write_file(path, b"x")
    assert told.value.filename == path and not stat.S_ISREG(os.stat(path).st_mode)


FORMATS = sorted(export.FORMATS)


def write(path, form):
    if form in ("arrow", "parquet"):
        pytest.importorskip("pyarrow")
    export.convert(recording(), str(path), form)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_follows_the_umask_and_keeps_a_mode(form, tmp_path, umask):
    path = tmp_path / "file"
    for mask in UMASKS:
        umask(mask)
        path.unlink(missing_ok=True)
        write(path, form)
        assert mode(path) == 0o666 & ~mask
        assert umask(mask) == mask
    for kept in (0o600, 0o640, 0o664):
        path.chmod(kept)
        write(path, form)
        assert mode(path) == kept
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("form", ["pickle", "sqlite"])
def test_a_link_is_replaced_and_grants_nothing(form, tmp_path, umask):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"kept")
    target.chmod(0o666)
    link.symlink_to(target)
    umask(0o027)
    write(link, form)
    assert not link.is_symlink() and mode(link) == 0o640
    assert target.read_bytes() == b"kept" and mode(target) == 0o666


@pytest.mark.parametrize("data", [b"x", lambda name: open(name, "wb").close()])
def test_the_group_of_a_folder_and_of_a_file(data, tmp_path, umask):
    groups = [g for g in {*os.getgroups(), 12345} if g != os.getegid()]
    if os.geteuid() != 0:
        groups = [g for g in os.getgroups() if g != os.getegid()]
    if not groups:
        pytest.skip("this user is of one group only")
    umask(0o002)
    os.chown(tmp_path, -1, groups[0])
    tmp_path.chmod(0o2775)
    path = tmp_path / "file"
    _core.write_file(path, data)
    assert path.stat().st_gid == groups[0] and mode(path) == 0o664
    # The folder gives its group no more; the file keeps it.
    tmp_path.chmod(0o755)
    os.chown(tmp_path, -1, os.getegid())
    path.chmod(0o660)
    _core.write_file(path, data)
    assert path.stat().st_gid == groups[0] and mode(path) == 0o660


def test_a_group_that_cannot_be_given_gets_nothing(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root makes a file of a group that it is not in")
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, 0, 12345)
    path.chmod(0o664)
    tmp_path.chmod(0o777)
    folder = os.open(tmp_path, os.O_PATH)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(54321, 54321, 54321)
        os.fchdir(folder)
        os.setresuid(54321, 54321, 54321)
        try:
            _core.write_file("file", b"new")
        finally:
            os._exit(0)
    os.close(folder)
    os.waitpid(child, 0)
    assert path.read_bytes() == b"new" and path.stat().st_uid == 54321
    assert mode(path) == 0o644


def test_a_strangers_file_in_a_sticky_folder_grants_nothing(tmp_path, umask):
    if os.geteuid() != 0:
        pytest.skip("only root makes a file of another user")
    umask(0o077)
    path = tmp_path / "file"
    path.write_bytes(b"planted")
    path.chmod(0o666)
    os.chown(path, 12345, 12345)
    tmp_path.chmod(0o1777)
    _core.write_file(path, b"secret")
    assert path.stat().st_uid == 0 and mode(path) == 0o600
    # In a folder of ours it is a file that somebody shares with us.
    tmp_path.chmod(0o777)
    path.chmod(0o640)
    os.chown(path, 12345, 12345)
    _core.write_file(path, b"shared")
    assert path.stat().st_uid == 12345 and mode(path) == 0o640


# ---- Access lists ----

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
_OWNER, _USER, _GROUP, _MASK, _OTHER = 1, 2, 4, 16, 32


def access_list(user, bits):
    """A list that lets USER have BITS, the owner all, and nobody else anything."""
    entries = (
        (_OWNER, 7, -1),
        (_USER, bits, user),
        (_GROUP, 0, -1),
        (_MASK, bits, -1),
        (_OTHER, 0, -1),
    )
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, perm, who & 0xFFFFFFFF) for tag, perm, who in entries
    )


def user_bits(path, user):
    """What the list of PATH lets USER do, under its mask; None without a list."""
    try:
        value = os.getxattr(path, ACCESS)
    except OSError:
        return None
    entries = list(struct.iter_unpack("<HHI", value[4:]))
    mask = next(perm for tag, perm, _ in entries if tag == _MASK)
    return next(
        (perm & mask for tag, perm, who in entries if tag == _USER and who == user), 0
    )


def set_list(path, name, value):
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"no access lists in {path}: {error}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's lists")
@pytest.mark.parametrize("data", [b"x", lambda name: open(name, "wb").close()])
def test_access_lists(data, tmp_path, umask):
    umask(0o077)
    set_list(tmp_path, DEFAULT, access_list(4321, 6))
    path, plain = tmp_path / "file", tmp_path / "plain"
    with open(plain, "wb"):
        pass
    _core.write_file(path, data)
    # A default list stands in for the umask: as of any other new file.
    assert user_bits(path, 4321) == user_bits(plain, 4321) == 6
    assert mode(path) == mode(plain)
    # A file keeps its own, whatever the folder's.
    os.setxattr(path, ACCESS, access_list(1234, 4))
    _core.write_file(path, data)
    assert user_bits(path, 1234) == 4 and user_bits(path, 4321) == 0
    os.removexattr(path, ACCESS)
    path.chmod(0o640)
    _core.write_file(path, data)
    assert user_bits(path, 4321) is None and mode(path) == 0o640


# ---- Recordings that are written while they are made ----

RECORD = """
import os, sys, memlab
os.umask(int(sys.argv[2], 8))
with memlab.MemorySnapshot(file=sys.argv[1], source="cpu"):
    print(oct(os.stat(sys.argv[1]).st_mode & 0o777), flush=True)
"""


def test_an_mlab_file_follows_the_umask_and_keeps_a_mode(tmp_path):
    path = tmp_path / "run.mlab"

    def record(mask):
        done = warm.run(RECORD, path, f"{mask:o}")
        assert done.returncode == 0, done.stderr
        # Who may read it when it is done may follow it from the start.
        assert done.stdout.strip() == oct(mode(path))
        return mode(path)

    assert record(0o022) == 0o644
    for kept in (0o600, 0o664, 0o640):
        path.chmod(kept)
        assert record(0o022) == kept
    path.unlink()
    assert record(0o002) == 0o664
    path.unlink()
    assert record(0o077) == 0o600
    # A file that was made for it is its owner's to open.
    path.unlink()
    path.touch()
    path.chmod(0o640)
    assert record(0o022) == 0o640
    assert os.listdir(tmp_path) == ["run.mlab"]

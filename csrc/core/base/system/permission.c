/* Sets the permission of an output file.  See permission.h. */
#define _DEFAULT_SOURCE 1 /* fchown, S_ISVTX */

#include "base/system/permission.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/xattr.h>
#endif

#define MODE_BITS 0777
#define GROUP_BITS 0070

ml_permission
ml_permission_of(int folder, const char *name)
{
    ml_permission permission = {.replaces = false};
    struct stat around;
    struct stat *old = &permission.old;
    permission.replaces = fstatat(folder, name, old, AT_SYMLINK_NOFOLLOW) == 0 &&
                          S_ISREG(old->st_mode) && fstat(folder, &around) == 0 &&
                          ((around.st_mode & S_ISVTX) == 0 || old->st_uid == geteuid());
    return permission;
}

mode_t
ml_permission_to_make(const ml_permission *permission)
{
    /* Another user who opens it now could read all later writes. */
    return permission->replaces ? 0600 : 0666;
}

/* A mode whose group part is at most everybody's. */
static mode_t
without_group(mode_t mode)
{
    return mode & (~(mode_t)GROUP_BITS | (mode & 07) << 3);
}

/* Whether FILE has the access list of NAME in FOLDER, or none as that. */
static bool
copy_list(int file, int folder, const char *name)
{
#ifdef __linux__
    static const char list[] = "system.posix_acl_access";
    char path[320]; /* a name has at most 255 bytes */
    char value[8192];
    /* The folder may have been moved since it was opened. */
    int length = snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return false;
    }
    ssize_t bytes = lgetxattr(path, list, value, sizeof(value));
    if (bytes >= 0) {
        return fsetxattr(file, list, value, (size_t)bytes, 0) == 0;
    }
    if (errno != ENODATA && errno != ENOTSUP) {
        return false;
    }
    return fremovexattr(file, list) == 0 || errno == ENODATA || errno == ENOTSUP;
#else
    (void)file, (void)folder, (void)name;
    return true;
#endif
}

static bool
copy_owner(int file, const struct stat *old)
{
    struct stat mine;
    if (fstat(file, &mine) != 0) {
        return false;
    }
    if (mine.st_uid == old->st_uid && mine.st_gid == old->st_gid) {
        return true;
    }
    /* Only root can give a file away; members can also give it to their group. */
    return fchown(file, old->st_uid, old->st_gid) == 0 ||
           fchown(file, (uid_t)-1, old->st_gid) == 0;
}

void
ml_permission_begin(ml_permission *permission, int file, int folder, const char *name)
{
    struct stat mine;
    if (permission->replaces) {
        permission->mode = permission->old.st_mode & MODE_BITS;
        if (!copy_list(file, folder, name) || !copy_owner(file, &permission->old)) {
            /* With other groups or ACLs, these bits would admit others. */
            permission->mode = without_group(permission->mode);
        }
    }
    else if (fstat(file, &mine) == 0) {
        permission->mode = mine.st_mode & MODE_BITS;
    }
    else {
        permission->mode = 0600;
    }
    /* A file system without modes refuses, and has none to change. */
    (void)!fchmod(file, 0600);
}

void
ml_permission_grant(const ml_permission *permission, int file)
{
    (void)!fchmod(file, permission->mode);
}

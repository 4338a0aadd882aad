/* Asks the kernel how much memory is left.  See host_memory.h. */
#define _GNU_SOURCE 1 /* strtok_r, PATH_MAX */

#include "base/system/host_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/infile.h"

/* The kernel's longest file here, memory.stat, has some 2 KiB. */
#define TEXT_BYTES 8192

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number in TEXT after NAME, which begins a line; OTHERWISE: there is none. */
static uint64_t
entry(const char *text, const char *name, uint64_t otherwise)
{
    size_t length = strlen(name);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0) {
            char *end;
            uint64_t number = strtoull(line + length, &end, 10);
            return end != line + length ? number : otherwise;
        }
    }
    return otherwise;
}

/* The number that is all of the file at PATH; UINT64_MAX for "max", or without it. */
static uint64_t
number_in(const char *path)
{
    char text[TEXT_BYTES];
    ml_infile_text(path, text, sizeof(text));
    return entry(text, "", UINT64_MAX);
}

static uint64_t
system_left(void)
{
    char text[TEXT_BYTES];
    ml_infile_text("/proc/meminfo", text, sizeof(text));
    uint64_t kib = entry(text, "MemAvailable:", UINT64_MAX);
    return kib == UINT64_MAX ? UINT64_MAX : (kib + entry(text, "SwapFree:", 0)) * 1024;
}

/* The names of a version of control groups. */
typedef struct naming {
    const char *mount;
    const char *most;
    const char *used;
    const char *cached[2]; /* lines of memory.stat */
} naming;

static const naming version_1 = {
    "/sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    {"total_active_file ", "total_inactive_file "},
};
static const naming version_2 = {
    "/sys/fs/cgroup",
    "memory.max",
    "memory.current",
    {"active_file ", "inactive_file "},
};

static const char *
file_of(const naming *names, const char *group, const char *file, char path[PATH_MAX])
{
    int length = snprintf(path, PATH_MAX, "%s%s/%s", names->mount, group, file);
    return length < PATH_MAX ? path : "";
}

/* What is left in one group; UINT64_MAX: unknown.  A group without any is not believed: this
 * process runs.  Seen on a host with a version 2 group for every command. */
static uint64_t
left_in(const naming *names, const char *group)
{
    char path[PATH_MAX];
    char text[TEXT_BYTES];
    uint64_t most = number_in(file_of(names, group, names->most, path));
    uint64_t used = number_in(file_of(names, group, names->used, path));
    if (most == UINT64_MAX || used == UINT64_MAX) {
        return UINT64_MAX;
    }
    ml_infile_text(file_of(names, group, "memory.stat", path), text, sizeof(text));
    uint64_t cached =
        entry(text, names->cached[0], 0) + entry(text, names->cached[1], 0);
    uint64_t held = used - smaller(used, cached);
    return most > held ? most - held : UINT64_MAX;
}

/* The least of the group at PATH, which is cut, and those around it, each with its own
 * limit.  In a container the path may be the host's; then only the outermost exists. */
static uint64_t
left_along(const naming *names, char *path)
{
    uint64_t left = left_in(names, "");
    for (char *last = path + strlen(path);
         last != NULL && path[0] == '/' && last > path; last = strrchr(path, '/')) {
        *last = '\0';
        left = path[0] != '\0' ? smaller(left, left_in(names, path)) : left;
    }
    return left;
}

/* Whether the comma separated CONTROLLERS, up to END, have memory among them. */
static bool
has_memory(const char *controllers, const char *end)
{
    static const char name[] = "memory";
    const size_t length = sizeof(name) - 1;
    for (const char *at = controllers; at < end; at += strcspn(at, ",:") + 1) {
        if (strncmp(at, name, length) == 0 &&
            (at[length] == ',' || at[length] == ':')) {
            return true;
        }
    }
    return false;
}

/* Lines are "number:controllers:path"; version 2 has no controllers. */
static uint64_t
groups_left(void)
{
    char text[TEXT_BYTES];
    uint64_t left = UINT64_MAX;
    ml_infile_text("/proc/self/cgroup", text, sizeof(text));
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        if (path == controllers + 1) {
            left = smaller(left, left_along(&version_2, path + 1));
        }
        else if (has_memory(controllers + 1, path)) {
            left = smaller(left, left_along(&version_1, path + 1));
        }
    }
    return left;
}

uint64_t
ml_host_memory_left(void)
{
    uint64_t system = system_left();
    return smaller(system != 0 ? system : UINT64_MAX, groups_left());
}

/* See host_room.h. */
#include "objects/host_room.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

namespace {

/* The number in the file's line after NAME and a space, or OTHERWISE. */
size_t
entry(const std::string &path, const std::string &name, size_t otherwise)
{
    std::ifstream file(path);
    std::string word;
    while (file >> word) {
        size_t number = 0;
        if (word == name && file >> number) {
            return number;
        }
        file.clear();
    }
    return otherwise;
}

/* The number in a file; SIZE_MAX for "max" or a missing file. */
size_t
number_in(const std::string &path)
{
    std::ifstream file(path);
    size_t number = 0;
    return file >> number ? number : SIZE_MAX;
}

/* The system's available memory; SIZE_MAX if unknown. */
size_t
system_room()
{
    const size_t kib = entry("/proc/meminfo", "MemAvailable:", SIZE_MAX);
    const size_t swap = entry("/proc/meminfo", "SwapFree:", 0);
    return kib == SIZE_MAX ? SIZE_MAX : (kib + swap) * 1024;
}

/* File names in a version of control groups. */
struct naming {
    const char *mount, *most, *used, *cache;
};
constexpr naming version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                              "memory.usage_in_bytes", "total_inactive_file"};
constexpr naming version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                              "inactive_file"};

/* The room in one group; SIZE_MAX if unknown.  Its page cache counts as used, though
 * the kernel would give it up. */
size_t
room_of(const naming &names, const std::string &folder)
{
    const size_t most = number_in(folder + "/" + names.most);
    const size_t used = number_in(folder + "/" + names.used);
    if (most == SIZE_MAX || used == SIZE_MAX) {
        return SIZE_MAX;
    }
    const size_t cache = entry(folder + "/memory.stat", names.cache, 0);
    const size_t held = used - std::min(used, cache);
    return most - std::min(most, held);
}

/* A group without any room cannot be that of this running process.  Seen on a host with
 * a version 2 group for every command. */
size_t
believed(size_t room)
{
    return room == 0 ? SIZE_MAX : room;
}

/* The least room in the group of PATH and those around it, each with its own limit.  In
 * a container, the path may be the host's; then only the outermost exists. */
size_t
room_along(const naming &names, std::string path)
{
    size_t room = believed(room_of(names, names.mount));
    while (path.size() > 1) {
        room = std::min(room, believed(room_of(names, names.mount + path)));
        path.erase(path.rfind('/'));
    }
    return room;
}

/* Lines are "number:controllers:path"; version 2 has no controllers. */
size_t
group_room()
{
    size_t room = SIZE_MAX;
    std::ifstream file("/proc/self/cgroup");
    std::string line;
    while (std::getline(file, line)) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1);
        if (controllers.empty()) {
            room = std::min(room, room_along(version_2, path));
        }
        else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
            room = std::min(room, room_along(version_1, path));
        }
    }
    return room;
}

} // namespace

void
ml_host_room_check(size_t bytes)
{
    const size_t room = std::min(believed(system_room()), group_room());
    if (room < bytes) {
        throw std::runtime_error("the host has " + std::to_string(room) +
                                 " bytes of memory left and " + std::to_string(bytes) +
                                 " are needed");
    }
}

/* What memory the host has left for this process.
 *
 * Owns where the system says so; what it is for it must not know.  C++; throws
 * std::exception. */
#ifndef ML_HOST_ROOM_H
#define ML_HOST_ROOM_H

#include <cstddef>

/* Throws where the host has no memory for BYTES more, before any of it is touched: a
 * system that runs out later ends the process. */
void ml_host_room_check(size_t bytes);

#endif

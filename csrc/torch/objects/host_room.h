/* Memory available on the host for this process.
 *
 * Owns the places where the system reports it.  C++; throws std::exception. */
#ifndef ML_HOST_ROOM_H
#define ML_HOST_ROOM_H

#include <cstddef>

/* Throws if the host has no memory for BYTES more, before any of it is touched.  If the
 * system ran out later, it would kill the process. */
void ml_host_room_check(size_t bytes);

#endif

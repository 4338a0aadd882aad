/* Memory of the host that this process holds, as the system says.  Knows no device. */
#ifndef ML_HOST_MEMORY_H
#define ML_HOST_MEMORY_H

#include <stdint.h>

/* The resident set in bytes; UINT64_MAX where the system does not tell. */
uint64_t ml_host_resident(void);

#endif

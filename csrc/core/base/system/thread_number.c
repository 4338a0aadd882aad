/* Numbers the threads of a process.  See thread_number.h. */
#include "base/system/thread_number.h"

#include <stdatomic.h>

static _Atomic uint32_t count;
/* Initial-exec: the first touch of lazily allocated TLS would call malloc. */
static __thread uint32_t mine __attribute__((tls_model("initial-exec")));

uint32_t
ml_thread_number(void)
{
    if (mine == 0) {
        mine = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
    }
    return mine;
}

/* Finds the processor's abilities.  See processor.h. */
#include "base/system/processor.h"

#if defined(__x86_64__)
bool
ml_processor_has_crc32c(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h> /* getauxval */

bool
ml_processor_has_crc32c(void)
{
    return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; /* HWCAP_CRC32 */
}
#else
bool
ml_processor_has_crc32c(void)
{
    return false;
}
#endif

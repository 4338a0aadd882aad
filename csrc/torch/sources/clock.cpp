/* Owns the clock of torch's memory events: c10's approximate ticks (on x86 the
 * processor's time stamp counter), converted to unix time by torch's own converter, so
 * that times agree with torch's snapshots. */
#include <new>

#include <c10/util/ApproximateClock.h>

#include "bridge.h"

namespace {

/* Measures its first pairs when it is made.  The earlier, the better the slope, so
 * loading the module makes it.  Never freed: conversions may be requested while the
 * process exits. */
c10::ApproximateClockToUnixTimeConverter *converter;

} // namespace

extern "C" {

int
ml_clock_init(void)
{
    if (converter == nullptr) {
        try {
            converter = new c10::ApproximateClockToUnixTimeConverter();
        }
        catch (...) {
            return ML_ENOMEM;
        }
    }
    return 0;
}

int
ml_clock_unix_ns(uint64_t *ticks, size_t stride_bytes, size_t count)
{
    if (converter == nullptr) {
        return ML_ESTATE;
    }
    try {
        /* Measures 1001 pairs anew: once per call, not per tick. */
        const auto convert = converter->makeConverter();
        char *at = reinterpret_cast<char *>(ticks);
        for (size_t i = 0; i < count; i++, at += stride_bytes) {
            uint64_t *tick = reinterpret_cast<uint64_t *>(at);
            *tick =
                static_cast<uint64_t>(convert(static_cast<c10::approx_time_t>(*tick)));
        }
    }
    catch (...) {
        return ML_ENOMEM;
    }
    return 0;
}

} /* extern "C" */

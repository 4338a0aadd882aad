/* The time that work takes on the phantom: none, but for events, which tell it.
 *
 * torch.compile times what it may choose from, and some choices are of memory: it pads the
 * operands of matrix products whose rows do not lie at multiples of 16 bytes, where that
 * is faster. By the host's clock chance would choose. So events tell what kernels would
 * have taken by a rule, whose only purpose is that choices are always the same, and where
 * they are of memory the likely ones of a GPU: a launch is 5 us, and a product of 16-bit
 * numbers is three times slower where its rows are not aligned. With that GPT-2, of 50,257
 * words, is padded as it was on an H200.
 */
#include "phantom.h"

#include <stdatomic.h>

static atomic_ullong nanoseconds;

void
ml_clock_spend(unsigned long long spent)
{
    atomic_fetch_add_explicit(&nanoseconds, spent, memory_order_relaxed);
}

unsigned long long
ml_clock_now(void)
{
    return atomic_load_explicit(&nanoseconds, memory_order_relaxed);
}

/* torch's caching allocator of pinned memory.  Up to torch 2.7 its header guards nothing, and
 * the bridge is compiled as one file. */
#ifndef ML_HOST_ALLOCATOR_H
#define ML_HOST_ALLOCATOR_H

#include <ATen/core/CachingHostAllocator.h>

#endif

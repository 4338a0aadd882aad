/* What a device of a page ran on: the whole GPU at the peak, the allocator's settings.
 *
 * Owns these keys of a device in the page's head. */
#ifndef ML_PAGE_MACHINE_H
#define ML_PAGE_MACHINE_H

#include "show/page/page_device.h"

/* Writes members of an open object. */
void ml_page_write_machine(ml_buffer *out, const ml_page_device *device);

#endif

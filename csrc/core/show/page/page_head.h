/* The tables in a page's head that all devices share: strings, frames, stacks, kinds,
 * lines, notes, ranks.
 *
 * Owns their keys.  Each function writes members of an open object. */
#ifndef ML_PAGE_HEAD_H
#define ML_PAGE_HEAD_H

#include "analysis/allocations/allocation_kinds.h"
#include "analysis/answers/peak.h"

void ml_page_head_begin(ml_buffer *out, const ml_recording *recording,
                        uint64_t base_us);
/* Functions with a result return 0 or ML_ENOMEM. */
int ml_page_head_kinds(ml_buffer *out, const ml_allocation_kinds *kinds);
void ml_page_head_ranks(ml_buffer *out, const ml_recording *recording);
int ml_page_head_notes(ml_buffer *out, const ml_recording *recording, uint64_t base_us);
/* The peak of a device. */
int ml_page_head_peak(ml_buffer *out, const ml_peak *peak, ml_allocation_kinds *kinds);

#endif

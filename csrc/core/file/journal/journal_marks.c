/* Remembers which blocks of a lane have their owner in the file.  See
 * journal_marks.h. */
#include "file/journal/journal_marks.h"

#include <stddef.h>

void
ml_marks_reset(const ml_journal_marks *marks)
{
    for (size_t i = 0; marks->blocks != NULL && i >> ML_MARK_BITS == 0; i++) {
        atomic_store_explicit(&marks->blocks[i], 0, memory_order_relaxed);
    }
}

void
ml_marks_start(const ml_journal_marks *marks, uint64_t addr)
{
    if (marks->blocks != NULL && (addr & ML_MARK_STATES) == 0) {
        /* An event since then takes precedence. */
        uint64_t nothing = 0;
        atomic_compare_exchange_strong(ml_mark_at(marks, addr), &nothing, addr);
    }
}

static uint64_t *
owner_at(const ml_journal_marks *marks, uint64_t addr)
{
    return &marks->owners[ml_mark_at(marks, addr) - marks->blocks];
}

bool
ml_marks_knows(const ml_journal_marks *marks, uint64_t addr, uint64_t owner)
{
    return marks->blocks != NULL && (addr & ML_MARK_STATES) == 0 &&
           atomic_load(ml_mark_at(marks, addr)) == (addr | ML_MARK_TOLD) &&
           *owner_at(marks, addr) == owner && owner != 0;
}

bool
ml_marks_claim(const ml_journal_marks *marks, uint64_t addr)
{
    if (marks->blocks == NULL || (addr & ML_MARK_STATES) != 0) {
        return false;
    }
    uint64_t block = addr;
    bool claimed = atomic_compare_exchange_strong(ml_mark_at(marks, addr), &block,
                                                  addr | ML_MARK_TOLD);
    if (!claimed && block != (addr | ML_MARK_TOLD)) {
        return false;
    }
    *owner_at(marks, addr) = 0;
    return true;
}

void
ml_marks_tell(const ml_journal_marks *marks, uint64_t addr, uint64_t owner)
{
    *owner_at(marks, addr) = owner;
}

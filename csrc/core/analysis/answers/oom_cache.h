/* The unused cache at an out of memory; the part of oom.h that reads every block. */
#ifndef ML_OOM_CACHE_H
#define ML_OOM_CACHE_H

#include "analysis/answers/oom.h"
#include "ledger/ledger.h"

/* From LEDGER, the memory of DEVICE at the event of OOM, fills unused, holes, fit and
 * pending; the request and the state are filled already.  0 or ML_ENOMEM. */
int ml_oom_fill_cache(ml_oom *oom, const ml_recording *recording, size_t device,
                      const ml_ledger *ledger);

#endif

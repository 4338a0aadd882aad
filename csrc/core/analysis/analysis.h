/* The base of every answer about a device of a recording: the fit of its events, its
 * peak, the lifetimes, causes and categories of its allocations, and states for
 * starting a replay.
 *
 * An analysis is made at first use, by one walk back over the events and one forward,
 * and belongs to the recording.  It is immutable; only the verdicts and what grows are
 * added at their first use.  Any thread may ask: if two threads make one of these at once,
 * one of the two stays. */
#ifndef ML_ANALYSIS_H
#define ML_ANALYSIS_H

#include "analysis/attribution/category.h"
#include "analysis/lifetimes/lifetimes.h"
#include "ledger/replay/replay.h"
#include "recording/recording.h"

typedef struct ml_analysis {
    const ml_recording *recording; /* borrowed */
    const ml_device_trace *trace;  /* borrowed */
    size_t device;
    const ml_causes *causes;   /* borrowed; of the whole recording */
    ml_categories *categories; /* owned */
    ml_lifetimes lifetimes;
    ml_replay_start *start; /* owned */
    ml_replay_result fit;
    uint64_t peak;   /* events before the first instant of the most allocated bytes */
    ml_totals peaks; /* each total's own peak */
    _Atomic(ml_verdict *)
        verdicts; /* owned; by row of lifetimes; NULL: not requested yet */
    _Atomic(ml_attached *) growth; /* owned; of answers/growth.h; NULL: likewise */
} ml_analysis;

/* RECORDING must not change any more.  *OUT is borrowed and lives as long as RECORDING.
 * 0, ML_EINVALID for a DEVICE that it lacks, or ML_ENOMEM. */
int ml_analysis_of(const ml_recording *recording, size_t device,
                   const ml_analysis **out);
/* Likewise, only the causes, of all devices. */
int ml_analysis_causes(const ml_recording *recording, const ml_causes **out);

/* A replay after POSITION events, for ml_replay_free.  0 or ML_ENOMEM. */
int ml_analysis_replay(const ml_analysis *analysis, size_t position, ml_replay **out);

typedef struct ml_explained {
    ml_cause cause;
    ml_verdict verdict;
    uint8_t pad;
    uint32_t name; /* string: its owner's; 0: none */
} ml_explained;    /* without gaps: its bytes are compared */
_Static_assert(sizeof(ml_explained) ==
                   sizeof(ml_cause) + sizeof(ml_verdict) + 1 + sizeof(uint32_t),
               "bytes are left");

/* Explains the block at ADDR by all rules: its cause, category and owner.  Event BIRTH
 * allocated it; or BIRTH is ML_BEFORE_EVENTS, and STACK its stack. */
ml_explained ml_explain(const ml_analysis *analysis, uint64_t addr, uint64_t birth,
                        uint32_t stack);
/* Likewise for the block of row INDEX of the lifetimes. */
ml_explained ml_explain_row(const ml_analysis *analysis, size_t index);

/* Makes the categories of all allocations, for ml_analysis_category.  0 or ML_ENOMEM. */
int ml_analysis_judge(const ml_analysis *analysis);
/* The enum ml_category of row INDEX of the lifetimes, without its cause. */
unsigned ml_analysis_category(const ml_analysis *analysis, size_t index);

#endif

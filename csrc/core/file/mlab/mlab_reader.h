/* From a .mlab file to a recording; docs/FORMAT.md describes the file.
 *
 * The reader trusts nothing: every value is checked before use, and memory use follows
 * the bytes of the file.  Damaged parts are left out and counted.  A file may be read
 * while it is written: the result has all events of each lane up to some moment. */
#ifndef ML_MLAB_READER_H
#define ML_MLAB_READER_H

#include "base/read_error.h"
#include "recording/recording.h"

/* The source of the bytes.  READ returns 0, or ML_EIO if it cannot read LENGTH bytes at
 * OFFSET. */
typedef struct ml_mlab_input {
    void *context;
    uint64_t bytes;
    int (*read)(void *context, uint64_t offset, void *to, size_t length);
} ml_mlab_input;

/* Events of a device are missing before the event at POSITION. */
typedef struct ml_mlab_gap {
    uint64_t position;
    uint64_t dropped; /* not stored */
    uint64_t lost;    /* stored, but unreadable */
    uint32_t device;
} ml_mlab_gap;

/* How the file was written. */
typedef struct ml_mlab_info {
    bool ended; /* false: its process continues or was killed */
    int stop;   /* enum ml_mlab_stop */
    int stop_errno;
    uint64_t pid;
    char host[64];
    uint64_t start_time; /* unix ns */
    uint64_t bytes;      /* of the file */
    uint64_t event_bytes;
    uint64_t definition_bytes;
    uint64_t control_bytes;
    uint64_t damaged_chunks;
    uint64_t lost_records;    /* of the control lane: not stored, or unreadable */
    uint64_t unread_records;  /* intact, but of an unknown kind, column or content */
    uint64_t unknown_starts;  /* devices without known memory at the start */
    uint64_t repeated_starts; /* devices with the memory at the start in parts */
    /* Its first part was dropped, with what was in it; zeros: it is all there. */
    uint64_t gone_events;
    uint64_t gone_steps;
    uint64_t gone_until;    /* unix ns: when the last of the events was */
    uint64_t native_frames; /* C++ frames, which have addresses but no names */
    ml_mlab_gap *gaps;      /* owned */
    size_t gap_count;
} ml_mlab_info;

void ml_mlab_info_fini(ml_mlab_info *info);

/* Whether BYTES, the first LENGTH of a file, begin a .mlab file. */
bool ml_mlab_is(const void *bytes, size_t length);

/* The open file DESCRIPTOR, with its present length.  0 or ML_EIO with errno. */
int ml_mlab_input_of(ml_mlab_input *input, const int *descriptor);

/* 0, or ML_E* with *ERROR filled in; *OUT and *INFO are written on success only. */
int ml_mlab_read(const ml_mlab_input *input, ml_recording **out, ml_mlab_info *info,
                 ml_read_error *error);

#endif

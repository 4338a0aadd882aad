/* From a .mlab file to a recording; docs/FORMAT.md describes the file.
 *
 * Treats the file as hostile: what it says is data, checked before use, and the memory
 * taken follows the bytes that are there.  What is damaged is left out and counted.  A
 * file may be read while it is written: the result is the state at some moment, of each
 * lane all events up to one of them. */
#ifndef ML_MLAB_READER_H
#define ML_MLAB_READER_H

#include "file/snapshot/value.h"
#include "recording/recording.h"

/* Where bytes come from.  READ returns 0, or ML_EIO where LENGTH bytes at OFFSET are not
 * to be had. */
typedef struct ml_mlab_input {
    void *context;
    uint64_t bytes;
    int (*read)(void *context, uint64_t offset, void *to, size_t length);
} ml_mlab_input;

/* Events of a device are missing in front of the event at POSITION. */
typedef struct ml_mlab_gap {
    uint64_t position;
    uint64_t dropped; /* not stored */
    uint64_t lost;    /* stored, but not to be read any more */
    uint32_t device;
} ml_mlab_gap;

/* What the file tells of its own making. */
typedef struct ml_mlab_info {
    bool ended; /* false: its process goes on or was killed */
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
    uint64_t lost_records;    /* of the control lane: not stored, or not to be read */
    uint64_t unread_records;  /* whole, of a kind or with a content unknown here */
    uint64_t unknown_starts;  /* devices whose memory at the start is not there */
    uint64_t repeated_starts; /* devices whose memory at the start came in parts */
    uint64_t native_frames;   /* of C++, which have addresses and no names */
    ml_mlab_gap *gaps;        /* owned */
    size_t gap_count;
} ml_mlab_info;

void ml_mlab_info_fini(ml_mlab_info *info);

/* Whether the first LENGTH bytes of a file are those of a .mlab file. */
bool ml_mlab_is(const void *bytes, size_t length);

/* Of the open file DESCRIPTOR, as long as it is now.  0 or ML_EIO with errno. */
int ml_mlab_input_of(ml_mlab_input *input, const int *descriptor);

/* 0, or ML_E* with *ERROR filled in; *OUT and *INFO are written on success only. */
int ml_mlab_read(const ml_mlab_input *input, ml_recording **out, ml_mlab_info *info,
                 ml_read_error *error);

#endif

/* Snapshots as literals of Python: the recording that is read, and what of it cannot be. */
#ifndef ML_TEST_SNAPSHOT_LITERALS_H
#define ML_TEST_SNAPSHOT_LITERALS_H

#include "base/base.h"
#include "file/snapshot/snapshot_reader.h"
#include "literal.h"
#include "test.h"

static ml_read_error failure;

/* The recording of a literal, or NULL with FAILURE filled in. */
static inline ml_recording *
read_literal(const char *text)
{
    ml_buffer pickle = literal_pickle(text);
    ml_recording *recording = NULL;
    failure = (ml_read_error){0};
    int result = ml_snapshot_read(pickle.bytes, pickle.length, &recording, &failure);
    ml_buffer_fini(&pickle);
    if ((result == 0) != (recording != NULL) || result != failure.code) {
        fprintf(stderr, "result %d with code %d\n", result, failure.code);
    }
    return recording;
}

/* What could not be read of a literal, "event.size 1 frame.line 2", or how it was refused.
 * Valid until the next. */
static inline const char *
unread_of(const char *text)
{
    static char said[400];
    ml_recording *recording = read_literal(text);
    if (recording == NULL) {
        return failure.text;
    }
    size_t length = 0;
    said[0] = '\0';
    for (unsigned kind = 0; kind < ML_UNREAD_COUNT; kind++) {
        if (recording->unread[kind] != 0) {
            length +=
                (size_t)snprintf(said + length, sizeof(said) - length, "%s%s %llu",
                                 length != 0 ? " " : "", ml_unread_text(kind),
                                 (unsigned long long)recording->unread[kind]);
        }
    }
    ml_recording_free(recording);
    return said;
}

#define CHECK_UNREAD(literal, text) CHECK_STR(unread_of(literal), text)

#endif

/* The viewer's page data: a recording as a head (one JSON document) and blobs of
 * columns.
 *
 * docs/FORMAT.md is its specification; memlab/viewer/data.js reads it. */
#ifndef ML_PAGE_DATA_H
#define ML_PAGE_DATA_H

#include "base/base.h"
#include "recording/recording.h"

typedef struct ml_page_data {
    ml_buffer head;   /* owned; safe in a script element of an HTML page */
    ml_buffer *blobs; /* owned */
    size_t blob_count;
} ml_page_data;

/* 0, ML_ELIMIT for more events than a page can number, or ML_ENOMEM.  Free it in any
 * case. */
int ml_page_data_make(ml_page_data *data, const ml_recording *recording);
void ml_page_data_fini(ml_page_data *data);

#endif

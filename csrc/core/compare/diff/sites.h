/* Sites: the allocating places of one device, and their live bytes over time.
 *
 * A site is a line of the user's code with the module that ran there, the function of
 * the library, or the autograd node, that was at work, and whether a backward pass ran;
 * where no line is known, the reason and the category stand for it.  Owns the sites of
 * all allocations of a device.  Causes are cause.h's, categories category.h's, live
 * blocks the replay's. */
#ifndef ML_SITES_H
#define ML_SITES_H

#include "analysis/analysis.h"
#include "recording/recording.h"
#include "recording/string_pool.h"

#define ML_NO_SITE UINT32_MAX
/* One more enum ml_no_line, for a site that every device has: bytes of blocks beyond
 * the allocator's rounding, because it did not split them.  They depend on earlier
 * memory and not on the allocating line, so they belong to no line. */
#define ML_NO_LINE_SLACK ML_NO_LINE_COUNT
#define ML_NO_MODULE_SLACK ML_NO_MODULE_COUNT /* the same as an enum ml_no_module */

/* Without padding, because it is compared as bytes. */
typedef struct ml_site_key {
    int64_t line;       /* 0: none */
    uint64_t operation; /* hash of a name; 0: none is known */
    uint32_t file;      /* text */
    uint32_t function;  /* text */
    uint32_t module;    /* text */
    uint8_t backward;   /* 0 or 1 */
    uint8_t category;   /* enum ml_category; ML_CATEGORY_COUNT if there is a line */
    uint8_t no_line;    /* enum ml_no_line, or ML_NO_LINE_SLACK */
    uint8_t no_module;  /* enum ml_no_module, or ML_NO_MODULE_SLACK */
} ml_site_key;

typedef struct ml_site {
    ml_site_key key;
    uint64_t largest; /* bytes of its largest block */
    uint32_t kinds;   /* a bit for each enum ml_category of its blocks */
    uint8_t phase;    /* enum ml_phase of its first block */
} ml_site;

typedef struct ml_sites {
    const ml_recording *recording; /* borrowed */
    const ml_analysis *analysis;   /* borrowed; of its device */
    ml_intern table;
    ml_site *items; /* owned; in the order of discovery */
    size_t count;
    size_t capacity;
    /* By event; owned.  site: ML_NO_SITE for other events than allocations. */
    uint32_t *site;
    uint8_t *category;
    uint8_t *phase; /* enum ml_phase */
    uint32_t *step;
    uint64_t *bytes;       /* of an allocation, without slack */
    uint32_t *freed;       /* site of the block that it ends; ML_NO_SITE: none */
    uint64_t *freed_bytes; /* of that block */
    uint64_t *allocated;   /* bytes on the device after it */
    size_t event_count;
    uint32_t *before_site; /* owned; of the analysis' earlier blocks */
    uint8_t *before_category;
    uint64_t *before_bytes;
} ml_sites;

/* RECORDING is borrowed and outlives the sites; TEXTS gets their texts.  0, ML_EINVALID
 * for a DEVICE that the recording lacks, or ML_ENOMEM, with nothing to free. */
int ml_sites_init(ml_sites *sites, ml_string_pool *texts, const ml_recording *recording,
                  size_t device);
void ml_sites_fini(ml_sites *sites);

/* A site's live bytes at an instant, and its most from the start of the instant's step
 * up to it, and from it to the step's end. */
typedef struct ml_site_live {
    /* without slack; with the slack site, the sum is the allocated bytes */
    uint64_t bytes;
    uint64_t blocks;
    uint64_t most_before; /* bytes; at least those above */
    uint64_t most_after;
    uint64_t of[ML_CATEGORY_COUNT]; /* bytes with slack: as a peak's categories */
} ml_site_live;

/* After POSITION events; the step is from event FIRST to before LAST, around POSITION.
 * The caller frees *LIVE, by site.  0 or ML_ENOMEM. */
int ml_sites_live(const ml_sites *sites, size_t position, size_t first, size_t last,
                  ml_site_live **live);

#endif

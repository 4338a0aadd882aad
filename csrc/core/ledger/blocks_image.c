/* Packs the block table.  See blocks.h.
 *
 * An image has the table's own fields, then the used parts of its arrays.  Indices stay
 * valid, so nothing in them changes. */
#include <string.h>

#include "ledger/blocks.h"

typedef struct part {
    void *items;
    size_t bytes;
} part;

#define PARTS 3

static void
list_parts(const ml_blocks *blocks, part parts[PARTS])
{
    parts[0] = (part){blocks->nodes, blocks->node_end * sizeof(blocks->nodes[0])};
    parts[1] = (part){blocks->spans, blocks->span_end * sizeof(blocks->spans[0])};
    parts[2] =
        (part){blocks->buckets, blocks->bucket_count * sizeof(blocks->buckets[0])};
}

size_t
ml_blocks_image_bytes(const ml_blocks *blocks)
{
    part parts[PARTS];
    size_t bytes = sizeof(*blocks);
    list_parts(blocks, parts);
    for (size_t i = 0; i < PARTS; i++) {
        bytes += parts[i].bytes;
    }
    return bytes;
}

void
ml_blocks_save(const ml_blocks *blocks, void *image)
{
    part parts[PARTS];
    unsigned char *at = image;
    memcpy(at, blocks, sizeof(*blocks));
    at += sizeof(*blocks);
    list_parts(blocks, parts);
    for (size_t i = 0; i < PARTS; i++) {
        memcpy(at, parts[i].items, parts[i].bytes);
        at += parts[i].bytes;
    }
}

void
ml_blocks_load(ml_blocks *blocks, const void *image)
{
    ml_blocks there = *blocks;
    part parts[PARTS];
    const unsigned char *at = image;
    memcpy(blocks, at, sizeof(*blocks));
    at += sizeof(*blocks);
    /* It keeps its own region. */
    blocks->region = there.region;
    blocks->nodes = there.nodes;
    blocks->spans = there.spans;
    blocks->buckets = there.buckets;
    blocks->order = there.order;
    blocks->limit = there.limit;
    list_parts(blocks, parts);
    for (size_t i = 0; i < PARTS; i++) {
        memcpy(parts[i].items, at, parts[i].bytes);
        at += parts[i].bytes;
    }
}

/* Workspaces of convolutions.  cuDNN's heuristics, a trained model, choose an engine,
 * which decides the workspace.
 *
 * A workspace has one of few forms: nothing; the tensors converted to channels last or
 * back; the same with the output written in place; channels padded for tensor cores;
 * partial sums for each image.  The rest, mostly sums of tiles, depends on the channels
 * and the filter, seldom on the batch.
 *
 * So a convolution gets the form and the rest of the most similar measured one.
 * Measured shapes are exact to the byte, and other batches nearly so. */
#include "libraries/workspace.h"

#include "phantom.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ROW_CELLS 18

/* Elements, as workspaces.def says. */
typedef struct {
    int16_t dimensions;
    int16_t stride;
    int32_t batch, inputs, side, outputs, filter_inputs, width, made;
    const char *cells;
} measured;

static const measured table[] = {
#define XX(dimensions, batch, inputs, side, outputs, filter_inputs, width, stride, \
           made, cells) \
    {dimensions, stride,        batch, inputs, side, \
     outputs,    filter_inputs, width, made,   cells},
#include "libraries/workspaces.def"
#undef XX
};

#define TABLE_ROWS (sizeof table / sizeof table[0])

/* --- Forms ----------------------------------------------------------------------------- */

enum {
    FORM_NOTHING,
    FORM_TURNED,   /* in the kernel's layout, channels padded */
    FORM_FUSED,    /* the same, with the output in its own layout */
    FORM_UNFILLED, /* all three converted, channels not padded */
    FORM_TWICE,    /* grouped: input and output converted and back */
    FORM_PARTIALS, /* a filter in float32 for each image */
    FORMS,
};

static int64_t
fill_up(int64_t channels, int64_t unit)
{
    return (channels + unit - 1) / unit * unit;
}

/* The bytes of each form; -1: it does not apply. */
static void
get_forms(const ml_convolution *of, int64_t forms[FORMS])
{
    int64_t unit = of->element == 2 ? 8 : 4;
    int64_t inputs = fill_up(of->inputs, unit), outputs = fill_up(of->outputs, unit);
    bool grouped = of->filter_inputs != of->inputs;
    bool filled = inputs != of->inputs || outputs != of->outputs;
    int64_t x = of->element * of->batch * of->plane;
    int64_t y = of->element * of->batch * of->made;
    int64_t w = of->element * of->outputs * of->filter_inputs * of->taps;
    int64_t filled_w =
        of->element * of->taps * outputs * (grouped ? of->filter_inputs : inputs);
    int64_t plain = x * of->inputs + y * of->outputs + w;

    for (int form = 0; form < FORMS; form++) {
        forms[form] = -1;
    }
    forms[FORM_NOTHING] = 0;
    if (of->channels_last) {
        forms[FORM_TURNED] = (inputs != of->inputs ? x * inputs : 0) +
                             (outputs != of->outputs ? y * outputs : 0) +
                             (filled ? filled_w : 0);
        forms[FORM_UNFILLED] = plain;
        if (filled) {
            forms[FORM_FUSED] = x * inputs + filled_w;
        }
    }
    else {
        forms[FORM_TURNED] =
            x * inputs + y * outputs + (of->taps > 1 || filled ? filled_w : 0);
        forms[FORM_FUSED] = x * inputs + filled_w;
        if (filled) {
            forms[FORM_UNFILLED] = plain;
        }
    }
    if (grouped) {
        forms[FORM_TWICE] = 2 * plain - w;
    }
    if (of->direction == ML_FILTER_GRADIENT) {
        forms[FORM_PARTIALS] = of->batch * 4 * (w / of->element);
    }
}

/* --- Likeness -------------------------------------------------------------------------- */

/* 16 times the binary logarithm, linear between powers of two; 0 for 0. */
static int64_t
logarithm(int64_t value)
{
    if (value <= 0) {
        return 0;
    }
    int whole = 63 - __builtin_clzll((unsigned long long)value);
    return 16 * whole + (int64_t)(((unsigned long long)value << (63 - whole)) >> 59) -
           16;
}

static int64_t
power(int64_t base, int exponent)
{
    int64_t product = 1;

    while (exponent-- > 0) {
        product *= base;
    }
    return product;
}

static ml_convolution
get_measured(const measured *row, const ml_convolution *asked)
{
    return (ml_convolution){
        .direction = asked->direction,
        .dimensions = row->dimensions,
        .batch = row->batch,
        .inputs = row->inputs,
        .outputs = row->outputs,
        .filter_inputs = row->filter_inputs,
        .taps = power(row->width, row->dimensions),
        .plane = power(row->side, row->dimensions),
        .made = power(row->made, row->dimensions),
        .stride = row->stride,
        .element = asked->element == 2 ? 2 : 4,
        .bfloat = asked->bfloat,
        .channels_last = asked->channels_last,
    };
}

/* Features that distinguish one choice of engine from another, with weights per octave,
 * unit or flag.  These weights found the most similar shapes best among the
 * measurements. */
#define FEATURES(XX) \
    XX(logarithm(of->batch), 20) \
    XX(logarithm(of->inputs), 50) \
    XX(logarithm(of->outputs), 200) \
    XX(logarithm(of->filter_inputs), 100) \
    XX(logarithm(of->taps), 195) \
    XX(logarithm(of->plane), 10) \
    XX(logarithm(of->batch * of->made), 120) \
    XX(16 * of->dimensions, 785) \
    XX(16 * (of->taps == 1), 565) \
    XX(16 * (of->stride < 4 ? of->stride : 4), 10) \
    XX(16 * (of->stride > 1), 30000) \
    XX(16 * (of->filter_inputs != of->inputs), 560) \
    XX(16 * (of->filter_inputs == 1 && of->inputs > 1), 560) \
    XX(16 * (of->inputs % 4 != 0), 35) \
    XX(16 * (of->inputs % 8 != 0), 40) \
    XX(16 * (of->outputs % 4 != 0), 280) \
    XX(16 * (of->outputs % 8 != 0), 70) \
    XX(16 * (of->plane % 4 != 0), 25) \
    XX(16 * (of->plane % 8 != 0), 140) \
    XX(16 * (of->inputs < 5 ? of->inputs : 5), 385) \
    XX(16 * (of->outputs < 5 ? of->outputs : 5), 10) \
    XX(16 * (of->plane == 1), 415) \
    XX(16 * (of->taps > 1 && of->plane == of->made * of->taps), 50)

enum {
#define XX(value, weight) +1
    FEATURE_COUNT = FEATURES(XX)
#undef XX
};

static void
get_features(const ml_convolution *of, int64_t features[FEATURE_COUNT])
{
    size_t i = 0;

#define XX(value, weight) features[i++] = (weight) * (int64_t)(value);
    FEATURES(XX)
#undef XX
}

/* The bytes of such a call in a row; -1: not measured. */
static int64_t
get_cell(const measured *row, const ml_convolution *asked)
{
    int dtype = asked->element != 2 ? 0 : asked->bfloat ? 2 : 1;
    int cell = asked->direction * 6 + asked->channels_last * 3 + dtype;
    const char *text = row->cells;
    int64_t bytes = -1;

    for (int i = 0; i <= cell; i++) {
        if (*text != '=') {
            bytes = *text == '-' ? -1 : strtoll(text, NULL, 10);
        }
        text += strcspn(text, " ");
        text += *text == ' ';
    }
    return bytes;
}

/* Of the held-out calls of bench/results/cudnn_held_out_* 95 % are between the least and
 * the most that the four most similar give, within 2 % or 1 MiB; with three 94 %. */
#define MOST_SIMILAR 4

typedef struct {
    const measured *row;
    int64_t distance;
    int64_t bytes; /* as measured there */
} similar;

/* The measured convolutions most similar to `asked`, the nearest first; their number. */
static int
find_similar(const ml_convolution *asked, similar found[MOST_SIMILAR])
{
    int64_t wanted[FEATURE_COUNT], features[FEATURE_COUNT];
    int count = 0;

    get_features(asked, wanted);
    for (size_t i = 0; i < TABLE_ROWS; i++) {
        ml_convolution is = get_measured(&table[i], asked);
        int64_t distance = 0;

        get_features(&is, features);
        for (int j = 0; j < FEATURE_COUNT; j++) {
            distance += llabs(features[j] - wanted[j]);
        }
        if (count == MOST_SIMILAR && distance >= found[count - 1].distance) {
            continue;
        }
        int64_t bytes = get_cell(&table[i], asked);

        if (bytes < 0) {
            continue;
        }
        int at = count < MOST_SIMILAR ? count++ : count - 1;

        for (; at > 0 && found[at - 1].distance > distance; at--) {
            found[at] = found[at - 1];
        }
        found[at] = (similar){&table[i], distance, bytes};
    }
    return count;
}

static double
tensor_bytes(const ml_convolution *of)
{
    double inputs = (double)of->plane * (double)of->inputs;

    return (inputs + (double)of->made * (double)of->outputs) * (double)of->batch;
}

/* A call whose workspace was estimated, since no GPU was measured at its shape. */
static atomic_bool estimated;

/* Exported for Python, which says so. */
ML_EXPORT(int, memlab_phantom_estimated_convolutions, (void))
{
    return atomic_load(&estimated);
}

static bool
is_same_shape(const ml_convolution *a, const ml_convolution *b)
{
    return a->dimensions == b->dimensions && a->batch == b->batch &&
           a->inputs == b->inputs && a->outputs == b->outputs &&
           a->filter_inputs == b->filter_inputs && a->taps == b->taps &&
           a->plane == b->plane && a->made == b->made && a->stride == b->stride;
}

/* What `of` takes if it is like a measured one. */
static int64_t
get_bytes_like(const ml_convolution *of, const similar *like)
{
    /* Sums of tiles take at most a tile of 64 KiB per multiprocessor. */
    const int64_t tiles = 132 << 16;
    ml_convolution is = get_measured(like->row, of);
    int64_t bytes = like->bytes, of_row[FORMS], forms[FORMS];
    int form = FORM_NOTHING;

    get_forms(&is, of_row);
    get_forms(of, forms);
    for (int i = 0; i < FORMS; i++) {
        if (of_row[i] >= 0 && llabs(bytes - of_row[i]) < llabs(bytes - of_row[form])) {
            form = i;
        }
    }
    int64_t rest = bytes - of_row[form];
    if (forms[form] < 0) {
        form = FORM_TURNED;
    }
    if (llabs(rest) > tiles) {
        /* Tensors of another kind, which grow with these. */
        rest = (int64_t)((double)rest * tensor_bytes(of) / tensor_bytes(&is));
    }
    return forms[form] + rest > 0 ? forms[form] + rest : 0;
}

/* Which of `count` similar ones `of` is like in the configuration's draw: always the same
 * one in a process.  Draw 0 has the most similar. */
static int
draw(const ml_convolution *of, int count)
{
    const int64_t shape[] = {
        of->direction, of->dimensions,    of->batch,  of->inputs,
        of->outputs,   of->filter_inputs, of->taps,   of->plane,
        of->stride,    of->element,       of->bfloat, of->channels_last,
    };
    uint64_t number = (uint64_t)ml_phantom_configure()->draw;

    if (number == 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
        /* The finalizer of MurmurHash3. */
        number = number * 31 + (uint64_t)shape[i];
        number = (number ^ number >> 33) * UINT64_C(0xff51afd7ed558ccd);
        number = (number ^ number >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
        number ^= number >> 33;
    }
    return (int)(number % (uint64_t)count);
}

int64_t
ml_convolution_workspace(const ml_convolution *of)
{
    similar found[MOST_SIMILAR] = {{0}};
    int count = find_similar(of, found);

    if (count == 0) {
        atomic_store(&estimated, true);
        return 0;
    }
    ml_convolution nearest = get_measured(found[0].row, of);

    if (is_same_shape(&nearest, of)) {
        return get_bytes_like(of, &found[0]);
    }
    atomic_store(&estimated, true);
    return get_bytes_like(of, &found[draw(of, count)]);
}

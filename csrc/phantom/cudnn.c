/* cuDNN's backend API, by which torch runs convolutions, and its handles.
 *
 * A descriptor keeps what is set on it. The heuristics offer one engine for a
 * graph of operations, whose workspace follows the rule at workspace_bytes().
 */
#include "phantom.h"

#include <stdlib.h>
#include <string.h>

/* memory.c has the measurement. */
#define HANDLE_BYTES (9 * ML_MIB)
#define INTERNAL_ERROR 4000 /* of cudnnStatus_t */

ML_EXPORT(int, cudnnCreate, (void **handle))
{
    *handle = ml_library_new(HANDLE_BYTES);
    return *handle != NULL ? 0 : INTERNAL_ERROR;
}

ML_EXPORT(int, cudnnDestroy, (void *handle))
{
    ml_library_free(handle);
    return 0;
}

ML_EXPORT(int, cudnnGetStream, (void *handle, void **stream))
{
    (void)handle;
    *stream = NULL;
    return 0;
}

ML_EXPORT(size_t, cudnnGetVersion, (void))
{
    return ml_phantom_cudnn_version();
}

ML_EXPORT(size_t, cudnnGetCudartVersion, (void))
{
    return (size_t)ml_phantom_cuda_version();
}

/* libraryPropertyType: major, minor and patch are 0, 1 and 2. */
ML_EXPORT(int, cudnnGetProperty, (int property, int *value))
{
    int version = (int)ml_phantom_cudnn_version();

    *value = property == 0   ? version / 10000
             : property == 1 ? version / 100 % 100
                             : version % 100;
    return 0;
}

ML_EXPORT(const char *, cudnnGetErrorString, (int status))
{
    return status == 0 ? "CUDNN_STATUS_SUCCESS" : "a cuDNN error of the phantom device";
}

ML_EXPORT(void, cudnnGetLastErrorString, (char *text, size_t size))
{
    if (size > 0) {
        text[0] = '\0';
    }
}

ML_SUCCEED(cudnnSetStream)

/* --- Descriptors ----------------------------------------------------------------------- */

/* cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, cudnnStatus_t. */
enum {
    ENGINEHEUR_OPERATION_GRAPH = 201,
    ENGINEHEUR_RESULTS = 202,
    ENGINECFG_ENGINE = 300,
    ENGINECFG_WORKSPACE_SIZE = 303,
    EXECUTION_PLAN_ENGINE_CONFIG = 401,
    EXECUTION_PLAN_WORKSPACE_SIZE = 402,
    OPERATIONGRAPH_OPS = 801,
    OPERATIONGRAPH_ENGINE_GLOBAL_COUNT = 802,
    TENSOR_DATA_TYPE = 901,
    TENSOR_DIMENSIONS = 902,
    TENSOR_STRIDES = 903,
    CONVOLUTION_FORWARD_W = 703,
    CONVOLUTION_FORWARD_X = 704,
    CONVOLUTION_FORWARD_Y = 705,
    CONVOLUTION_BWD_DATA_W = 709,
    CONVOLUTION_BWD_DATA_DX = 710,
    CONVOLUTION_BWD_DATA_DY = 711,
    CONVOLUTION_BWD_FILTER_DW = 715,
    CONVOLUTION_BWD_FILTER_X = 716,
    CONVOLUTION_BWD_FILTER_DY = 717,
    ENGINE_OPERATION_GRAPH = 1300,

    TYPE_INT64 = 3,
    TYPE_BACKEND_DESCRIPTOR = 15,
    TYPE_INT32 = 23,
    TYPE_CHAR = 24,

    STATUS_BAD_PARAM = 2000,
};

/* cudnnBackendDescriptorType_t. */
enum {
    OPERATION_CONVOLUTION_FORWARD = 10,
    OPERATION_CONVOLUTION_BACKWARD_FILTER = 11,
    OPERATION_CONVOLUTION_BACKWARD_DATA = 12,
    OPERATION_MATMUL = 19,
    OPERATION_SDPA_FORWARD = 41,
    OPERATION_SDPA_BACKWARD = 43,
};

typedef struct attribute {
    int name;
    int type;
    int64_t count; /* elements */
    size_t bytes;
    struct attribute *next;
    unsigned char data[];
} attribute;

/* Kept alive by its references: callers destroy a graph while a plan uses it. */
typedef struct descriptor {
    int kind;
    int references;
    attribute *attributes;
} descriptor;

static descriptor *descriptor_release(descriptor *released);

static size_t
element_bytes(int type)
{
    switch (type) {
    case 0:  /* handle */
    case 3:  /* int64 */
    case 5:  /* double */
    case 6:  /* pointer */
    case 15: /* descriptor */
    case 26: /* fraction: two int64, read as a pair */
        return type == 26 ? 16 : 8;
    case 2:  /* boolean */
    case 24: /* char */
        return 1;
    default: /* enumerations, float and int32 */
        return 4;
    }
}

static attribute *
descriptor_find(const descriptor *searched, int name)
{
    for (attribute *each = searched->attributes; each; each = each->next) {
        if (each->name == name) {
            return each;
        }
    }
    return NULL;
}

static void
attribute_free(attribute *freed)
{
    if (freed->type == TYPE_BACKEND_DESCRIPTOR) {
        descriptor **held = (descriptor **)(void *)freed->data;

        for (int64_t i = 0; i < freed->count; i++) {
            descriptor_release(held[i]);
        }
    }
    free(freed);
}

static descriptor *
descriptor_release(descriptor *released)
{
    if (released != NULL && --released->references == 0) {
        while (released->attributes != NULL) {
            attribute *next = released->attributes->next;

            attribute_free(released->attributes);
            released->attributes = next;
        }
        free(released);
    }
    return NULL;
}

static int
descriptor_set(descriptor *set, int name, int type, int64_t count, const void *data)
{
    size_t bytes = (size_t)count * element_bytes(type);
    attribute *made = malloc(sizeof *made + bytes);

    if (made == NULL) {
        return STATUS_BAD_PARAM;
    }
    for (attribute **link = &set->attributes; *link; link = &(*link)->next) {
        if ((*link)->name == name) {
            attribute *old = *link;

            *link = old->next;
            attribute_free(old);
            break;
        }
    }
    *made = (attribute){name, type, count, bytes, set->attributes};
    if (bytes > 0) {
        memcpy(made->data, data, bytes);
    }
    if (type == TYPE_BACKEND_DESCRIPTOR) {
        descriptor **held = (descriptor **)(void *)made->data;

        for (int64_t i = 0; i < count; i++) {
            if (held[i] != NULL) {
                held[i]->references++;
            }
        }
    }
    set->attributes = made;
    return 0;
}

/* --- Workspaces ------------------------------------------------------------------------ */

#define MAX_DIMENSIONS 8

typedef struct {
    int dimensions;
    int64_t size[MAX_DIMENSIONS];
    int64_t elements;
    int64_t bytes;
    bool channels_last;
} tensor;

static size_t
get_integers(const descriptor *from, int name, int64_t *values)
{
    const attribute *kept = descriptor_find(from, name);

    if (kept == NULL || kept->type != TYPE_INT64 || kept->count > MAX_DIMENSIONS) {
        return 0;
    }
    memcpy(values, kept->data, kept->bytes);
    return (size_t)kept->count;
}

/* cudnnDataType_t. */
static int64_t
data_type_bytes(const descriptor *of)
{
    const attribute *kept = descriptor_find(of, TENSOR_DATA_TYPE);
    int32_t type = 0;

    if (kept != NULL && kept->bytes >= sizeof type) {
        memcpy(&type, kept->data, sizeof type);
    }
    switch (type) {
    case 1: /* double */
        return 8;
    case 2: /* half */
    case 9: /* bfloat16 */
        return 2;
    case 3: /* the 8-bit types */
    case 6:
    case 12:
    case 13:
        return 1;
    default:
        return 4;
    }
}

static tensor
get_tensor(const descriptor *from)
{
    tensor read = {.elements = 1};
    int64_t stride[MAX_DIMENSIONS] = {0};

    read.dimensions = (int)get_integers(from, TENSOR_DIMENSIONS, read.size);
    get_integers(from, TENSOR_STRIDES, stride);
    for (int i = 0; i < read.dimensions; i++) {
        read.elements *= read.size[i];
    }
    read.bytes = read.elements * data_type_bytes(from);
    read.channels_last = read.dimensions > 2 && read.size[1] > 1 && stride[1] == 1;
    return read;
}

/* The tensor that attribute `name` of an operation refers to. */
static tensor
get_operand(const descriptor *operation, int name)
{
    const attribute *kept = descriptor_find(operation, name);
    descriptor *operand = NULL;

    if (kept != NULL && kept->type == TYPE_BACKEND_DESCRIPTOR && kept->count == 1) {
        memcpy(&operand, kept->data, sizeof operand);
    }
    return operand ? get_tensor(operand) : (tensor){0};
}

/* The rule, from what cuDNN 9.19 was seen to ask for on an H200:
 *
 * - Grouped by channel (depthwise): nothing.
 * - 1 x 1 and stride 1 on planes of a multiple of 16 bytes: a plain product, which
 *   needs nothing; its filter gradient sums partial gradients, 32 of them or 8 MiB.
 * - Forward from one channel, or in patches (stride as wide as the filter): nothing.
 * - Channels last: nothing, but x and w where the channels do not fill four.
 * - Otherwise x, y and a filter wider than 1 are turned to channels last in the
 *   workspace.
 * - The gradient of a filter wider than 1 sums partial gradients: 14 of them or 8 MiB
 *   in float32; 8 in half precision, where the filter is below 1 MiB.
 */
static int64_t
convolution_bytes(const descriptor *operation, int x_name, int w_name, int y_name)
{
    const int64_t partial_limit = (int64_t)8 << 20;
    bool filter_gradient = x_name == CONVOLUTION_BWD_FILTER_X;
    bool forward = x_name == CONVOLUTION_FORWARD_X;
    tensor x = get_operand(operation, x_name);
    tensor w = get_operand(operation, w_name);
    tensor y = get_operand(operation, y_name);
    int64_t channels = x.size[1], plane = 1, partials;
    bool pointwise = true, patches = true;

    if (x.dimensions < 3 || w.dimensions != x.dimensions ||
        y.dimensions != x.dimensions || x.elements == 0) {
        return 0;
    }
    for (int i = 2; i < x.dimensions; i++) {
        pointwise = pointwise && w.size[i] == 1 && x.size[i] == y.size[i];
        patches = patches && w.size[i] > 1 && x.size[i] == y.size[i] * w.size[i];
        plane *= x.size[i];
    }
    if (w.size[1] == 1 && channels > 1) {
        return 0;
    }
    if (pointwise && plane * (x.bytes / x.elements) % 16 == 0) {
        partials = 32 * w.bytes < partial_limit ? 32 * w.bytes : partial_limit;
        return filter_gradient ? partials : 0;
    }
    if (forward && (channels == 1 || patches)) {
        return 0;
    }
    bool wide = w.elements != w.size[0] * w.size[1];
    if (w.bytes == 2 * w.elements) {
        partials = w.bytes < 1 << 20 ? 8 * w.bytes : 0;
    }
    else {
        partials = 14 * w.bytes < partial_limit ? 14 * w.bytes : partial_limit;
    }
    int64_t bytes = filter_gradient && wide ? partials : 0;
    if (!x.channels_last) {
        bytes += x.bytes + y.bytes + (wide ? w.bytes : 0) + 16;
    }
    else if (channels % 4 != 0) {
        bytes += x.bytes + w.bytes + 16;
    }
    return bytes;
}

static int64_t
workspace_bytes(const descriptor *graph)
{
    const attribute *operations = descriptor_find(graph, OPERATIONGRAPH_OPS);
    int64_t bytes = 0;

    if (operations == NULL || operations->type != TYPE_BACKEND_DESCRIPTOR) {
        return 0;
    }
    for (int64_t i = 0; i < operations->count; i++) {
        descriptor *operation;

        memcpy(&operation, operations->data + (size_t)i * sizeof operation,
               sizeof operation);
        switch (operation->kind) {
        case OPERATION_CONVOLUTION_FORWARD:
            bytes += convolution_bytes(operation, CONVOLUTION_FORWARD_X,
                                       CONVOLUTION_FORWARD_W, CONVOLUTION_FORWARD_Y);
            break;
        case OPERATION_CONVOLUTION_BACKWARD_DATA:
            bytes += convolution_bytes(operation, CONVOLUTION_BWD_DATA_DX,
                                       CONVOLUTION_BWD_DATA_W, CONVOLUTION_BWD_DATA_DY);
            break;
        case OPERATION_CONVOLUTION_BACKWARD_FILTER:
            bytes +=
                convolution_bytes(operation, CONVOLUTION_BWD_FILTER_X,
                                  CONVOLUTION_BWD_FILTER_DW, CONVOLUTION_BWD_FILTER_DY);
            break;
        case OPERATION_MATMUL:
        case OPERATION_SDPA_FORWARD:
        case OPERATION_SDPA_BACKWARD:
            /* Attention: what torch's front end does not reckon itself. */
            return 256;
        default:
            break;
        }
    }
    return bytes;
}

/* The graph of operations that a heuristic, an engine, its configuration or a plan
 * was made for. */
static const descriptor *
descriptor_graph(const descriptor *of)
{
    static const int towards[] = {EXECUTION_PLAN_ENGINE_CONFIG, ENGINECFG_ENGINE,
                                  ENGINE_OPERATION_GRAPH, ENGINEHEUR_OPERATION_GRAPH};

    for (size_t i = 0; i < sizeof towards / sizeof towards[0]; i++) {
        const attribute *next = descriptor_find(of, towards[i]);

        if (next != NULL && next->count > 0) {
            descriptor *reached;

            memcpy(&reached, next->data, sizeof reached);
            return reached ? descriptor_graph(reached) : of;
        }
    }
    return of;
}

/* --- The API ------------------------------------------------------------------------------ */

ML_EXPORT(int, cudnnBackendCreateDescriptor, (int kind, descriptor **made))
{
    *made = calloc(1, sizeof **made);
    if (*made == NULL) {
        return STATUS_BAD_PARAM;
    }
    (*made)->kind = kind;
    (*made)->references = 1;
    return 0;
}

ML_EXPORT(int, cudnnBackendDestroyDescriptor, (descriptor * destroyed))
{
    descriptor_release(destroyed);
    return 0;
}

ML_EXPORT(int, cudnnBackendSetAttribute,
          (descriptor * set, int name, int type, int64_t count, const void *data))
{
    return descriptor_set(set, name, type, count, data);
}

ML_SUCCEED(cudnnBackendFinalize)
ML_SUCCEED(cudnnBackendExecute)

/* Fills descriptors that the caller made with one that leads back to `from`: an
 * engine's configuration from a heuristic, an engine from a configuration. */
static int
get_descriptor(descriptor *from, int name, int64_t requested, int64_t *count,
               void *data)
{
    const descriptor *graph = descriptor_graph(from);
    descriptor **filled = data;

    if (count != NULL) {
        *count = 1;
    }
    if (requested > 0 && filled != NULL && filled[0] != NULL && graph != from) {
        (void)name;
        return descriptor_set(filled[0], ENGINE_OPERATION_GRAPH,
                              TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    }
    return 0;
}

ML_EXPORT(int, cudnnBackendGetAttribute,
          (descriptor * from, int name, int type, int64_t requested, int64_t *count,
           void *data))
{
    const attribute *kept = descriptor_find(from, name);

    if (type == TYPE_BACKEND_DESCRIPTOR && name != OPERATIONGRAPH_OPS) {
        if (name == ENGINEHEUR_RESULTS || name == ENGINECFG_ENGINE ||
            name == EXECUTION_PLAN_ENGINE_CONFIG) {
            return get_descriptor(from, name, requested, count, data);
        }
        if (count != NULL) {
            *count = 0;
        }
        return 0;
    }
    if (kept != NULL && kept->type == type) {
        int64_t copied = requested < kept->count ? requested : kept->count;

        if (count != NULL) {
            *count = kept->count;
        }
        if (data != NULL && copied > 0) {
            memcpy(data, kept->data, (size_t)copied * element_bytes(type));
        }
        return 0;
    }
    if (type == TYPE_INT64) {
        int64_t value = 0;

        if (name == OPERATIONGRAPH_ENGINE_GLOBAL_COUNT) {
            value = 1;
        }
        else if (name == ENGINECFG_WORKSPACE_SIZE ||
                 name == EXECUTION_PLAN_WORKSPACE_SIZE) {
            value = workspace_bytes(descriptor_graph(from));
        }
        if (count != NULL) {
            *count = 1;
        }
        if (data != NULL && requested > 0) {
            memcpy(data, &value, sizeof value);
        }
        return 0;
    }
    /* The shared memory that an engine needs. */
    if (type == TYPE_INT32) {
        if (count != NULL) {
            *count = 1;
        }
        if (data != NULL && requested > 0) {
            memset(data, 0, sizeof(int32_t));
        }
        return 0;
    }
    /* A plan as JSON is torch's key for it; an empty object will do. Notes on an
     * engine's numbers and behaviour: none. */
    if (type == TYPE_CHAR) {
        if (count != NULL) {
            *count = 3;
        }
        if (data != NULL && requested >= 3) {
            memcpy(data, "{}", 3);
        }
        return 0;
    }
    if (count != NULL) {
        *count = 0;
    }
    return 0;
}

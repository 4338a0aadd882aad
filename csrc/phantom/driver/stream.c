/* Streams, events and the capture of graphs.
 *
 * Work is done at once, so streams order nothing and every event has happened.  What
 * remains is which stream belongs to which capture.  As on a real device, a capture
 * spreads from stream to stream along events. */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* What a program lends to graphs: `destroy` is called when nobody holds it any more.
 * Guarded by the lock. */
typedef struct {
    void (*destroy)(void *content);
    void *content;
    unsigned int holds;
} user_object;

/* The objects that a graph holds; each counts in its `holds`. */
typedef struct held {
    struct held *next;
    user_object *object;
    unsigned int holds;
} held;

/* A graph, and while it is being made the capture that makes it; or one that can be
 * launched. Its life ends with cudaGraphDestroy or cudaGraphExecDestroy. */
typedef struct {
    unsigned long long id;
    held *objects; /* owned; guarded by the lock */
} graph;

typedef struct stream {
    int priority;
    int device;
    graph *capture;      /* borrowed; NULL: the stream captures nothing */
    struct stream *next; /* all streams; guarded by the lock */
} stream;

typedef struct {
    unsigned long long recorded; /* the device's clock at the last cudaEventRecord */
    graph *capture;              /* borrowed; the capture at that time */
} event;

static stream *streams;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ullong next_capture = 1;

/* The default streams are small numbers (0, 1, 2) and cannot be captured. */
static stream *
as_stream(const void *handle)
{
    return (uintptr_t)handle > 2 ? (stream *)(uintptr_t)handle : NULL;
}

/* --- Streams ------------------------------------------------------------------ */

static ml_cuda_error
stream_new(void **handle, int priority)
{
    ml_phantom_wait();
    stream *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return ml_phantom_error(ML_CUDA_ErrorMemoryAllocation);
    }
    made->priority = priority;
    made->device = ml_phantom_device();
    pthread_mutex_lock(&lock);
    made->next = streams;
    streams = made;
    pthread_mutex_unlock(&lock);
    *handle = made;
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaStreamCreate, (void **handle))
{
    return stream_new(handle, 0);
}

ML_EXPORT(ml_cuda_error, cudaStreamCreateWithFlags, (void **handle))
{
    return stream_new(handle, 0);
}

ML_EXPORT(ml_cuda_error, cudaStreamCreateWithPriority,
          (void **handle, unsigned int flags, int priority))
{
    (void)flags;
    return stream_new(handle, priority);
}

ML_EXPORT(ml_cuda_error, cudaStreamDestroy, (void *handle))
{
    stream *ended = as_stream(handle);

    ml_phantom_wait();
    if (ended == NULL) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidResourceHandle);
    }
    pthread_mutex_lock(&lock);
    stream **link = &streams;
    while (*link != NULL && *link != ended) {
        link = &(*link)->next;
    }
    if (*link == ended) {
        *link = ended->next;
        free(ended);
    }
    pthread_mutex_unlock(&lock);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaStreamGetPriority, (const void *handle, int *priority))
{
    const stream *asked = as_stream(handle);

    *priority = asked ? asked->priority : 0;
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaStreamGetDevice, (const void *handle, int *device))
{
    const stream *asked = as_stream(handle);

    *device = asked ? asked->device : ml_phantom_device();
    return ML_CUDA_Success;
}

ML_SUCCEED_UNLOCKED(cudaStreamQuery)
ML_SUCCEED_UNLOCKED(cudaStreamSynchronize)

typedef void (*host_function)(void *data);
typedef void (*stream_callback)(void *stream, int status, void *data);

ML_EXPORT(ml_cuda_error, cudaLaunchHostFunc,
          (const void *handle, host_function call, void *data))
{
    const stream *used = as_stream(handle);

    if (used == NULL || used->capture == NULL) {
        ml_phantom_run_callback(call, data);
    }
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaStreamAddCallback,
          (void *handle, stream_callback call, void *data))
{
    call(handle, ML_CUDA_Success, data);
    return ML_CUDA_Success;
}

/* --- Events ------------------------------------------------------------------- */

static ml_cuda_error
event_new(void **handle)
{
    ml_phantom_wait();
    *handle = calloc(1, sizeof(event));
    return *handle ? ML_CUDA_Success : ml_phantom_error(ML_CUDA_ErrorMemoryAllocation);
}

static ml_cuda_error
event_record(event *recorded, const void *handle)
{
    const stream *used = as_stream(handle);

    ml_phantom_wait();
    recorded->recorded = ml_clock_now();
    recorded->capture = used ? used->capture : NULL;
    return ML_CUDA_Success;
}

static ml_cuda_error
event_elapsed(float *milliseconds, const event *from, const event *to)
{
    double nanoseconds = (double)to->recorded - (double)from->recorded;

    /* Never zero: programs divide by it. */
    *milliseconds = (float)((nanoseconds + 1000) * 1e-6);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaEventCreate, (void **handle))
{
    return event_new(handle);
}

ML_EXPORT(ml_cuda_error, cudaEventCreateWithFlags, (void **handle))
{
    return event_new(handle);
}

ML_EXPORT(ml_cuda_error, cudaEventDestroy, (void *handle))
{
    ml_phantom_wait();
    free(handle);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaEventRecord, (void *handle, const void *on))
{
    return event_record(handle, on);
}

ML_EXPORT(ml_cuda_error, cudaEventRecordWithFlags, (void *handle, const void *on))
{
    return event_record(handle, on);
}

ML_EXPORT(ml_cuda_error, cudaEventElapsedTime,
          (float *milliseconds, const void *from, const void *to))
{
    return event_elapsed(milliseconds, from, to);
}

ML_EXPORT(ml_cuda_error, cudaEventElapsedTime_v2,
          (float *milliseconds, const void *from, const void *to))
{
    return event_elapsed(milliseconds, from, to);
}

ML_SUCCEED_UNLOCKED(cudaEventQuery)
ML_SUCCEED_UNLOCKED(cudaEventSynchronize)

ML_EXPORT(ml_cuda_error, cudaStreamWaitEvent, (void *handle, const event *awaited))
{
    stream *waiting = as_stream(handle);

    if (waiting != NULL && awaited->capture != NULL) {
        waiting->capture = awaited->capture;
    }
    return ML_CUDA_Success;
}

/* --- Graphs ------------------------------------------------------------------- */

ML_EXPORT(ml_cuda_error, cudaStreamBeginCapture, (void *handle))
{
    stream *captured = as_stream(handle);

    if (captured == NULL) {
        return ml_phantom_error(ML_CUDA_ErrorStreamCaptureUnsupported);
    }
    graph *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return ml_phantom_error(ML_CUDA_ErrorMemoryAllocation);
    }
    made->id = atomic_fetch_add(&next_capture, 1);
    captured->capture = made;
    ml_contents_capture(true);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaStreamEndCapture, (void *handle, void **graph_handle))
{
    stream *captured = as_stream(handle);

    if (captured == NULL || captured->capture == NULL) {
        return ml_phantom_error(ML_CUDA_ErrorStreamCaptureUnmatched);
    }
    graph *made = captured->capture;
    ml_contents_capture(false);
    pthread_mutex_lock(&lock);
    for (stream *each = streams; each != NULL; each = each->next) {
        if (each->capture == made) {
            each->capture = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    *graph_handle = made;
    return ML_CUDA_Success;
}

/* Writes a capture's status and identity.  CUDA's other results are NULL and zero,
 * where the caller gave room. */
static ml_cuda_error
capture_info(const void *handle, int *status, unsigned long long *id, void **made)
{
    const stream *asked = as_stream(handle);
    graph *capture = asked ? asked->capture : NULL;

    *status = capture ? ML_CUDA_CAPTURE_ACTIVE : ML_CUDA_CAPTURE_NONE;
    if (id != NULL) {
        *id = capture ? capture->id : 0;
    }
    if (made != NULL) {
        *made = capture;
    }
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaStreamIsCapturing, (const void *handle, int *status))
{
    return capture_info(handle, status, NULL, NULL);
}

/* The driver's numbers are the same.  Triton 3.9 calls it. */
ML_EXPORT(int, cuStreamIsCapturing, (const void *handle, int *status))
{
    return (int)capture_info(handle, status, NULL, NULL);
}

/* CUDA 12: without the edges' data. */
ML_EXPORT(ml_cuda_error, cudaStreamGetCaptureInfo_v2,
          (const void *handle, int *status, unsigned long long *id, void **made,
           void **dependencies, size_t *count))
{
    if (dependencies != NULL) {
        *dependencies = NULL;
    }
    if (count != NULL) {
        *count = 0;
    }
    return capture_info(handle, status, id, made);
}

static ml_cuda_error
capture_info_with_edges(const void *handle, int *status, unsigned long long *id,
                        void **made, void **dependencies, void **edges, size_t *count)
{
    if (edges != NULL) {
        *edges = NULL;
    }
    return cudaStreamGetCaptureInfo_v2(handle, status, id, made, dependencies, count);
}

ML_EXPORT(ml_cuda_error, cudaStreamGetCaptureInfo_v3,
          (const void *handle, int *status, unsigned long long *id, void **made,
           void **dependencies, void **edges, size_t *count))
{
    return capture_info_with_edges(handle, status, id, made, dependencies, edges,
                                   count);
}

/* CUDA 13's name for the same. */
ML_EXPORT(ml_cuda_error, cudaStreamGetCaptureInfo,
          (const void *handle, int *status, unsigned long long *id, void **made,
           void **dependencies, void **edges, size_t *count))
{
    return capture_info_with_edges(handle, status, id, made, dependencies, edges,
                                   count);
}

ML_EXPORT(ml_cuda_error, cudaThreadExchangeStreamCaptureMode, (int *mode))
{
    static _Thread_local int current;
    int previous = current;

    current = *mode;
    *mode = previous;
    return ML_CUDA_Success;
}

/* Nodes are not kept.  torch asks only for their number, to warn of an empty graph. */
ML_EXPORT(ml_cuda_error, cudaGraphGetNodes,
          (const graph *asked, void **nodes, size_t *count))
{
    (void)asked, (void)nodes;
    *count = 1;
    return ML_CUDA_Success;
}

/* Gives back so many of an object's holds; whoever gives the last one destroys it. */
static void
object_release(user_object *object, unsigned int holds)
{
    pthread_mutex_lock(&lock);
    object->holds -= holds < object->holds ? holds : object->holds;
    bool last = object->holds == 0;
    pthread_mutex_unlock(&lock);
    if (last) {
        ml_phantom_run_callback(object->destroy, object->content);
        free(object);
    }
}

/* From now on the graph has so many holds of the object, which are new where the caller
 * does not hand over its own. */
static ml_cuda_error
graph_hold(graph *holder, user_object *object, unsigned int holds, bool handed_over)
{
    held *made = malloc(sizeof *made);

    if (made == NULL) {
        return ML_CUDA_ErrorMemoryAllocation;
    }
    pthread_mutex_lock(&lock);
    *made = (held){holder->objects, object, holds};
    holder->objects = made;
    object->holds += handed_over ? 0 : holds;
    pthread_mutex_unlock(&lock);
    return ML_CUDA_Success;
}

static void
graph_free(graph *ended)
{
    held *next = ended->objects;

    while (next != NULL) {
        held *each = next;

        next = each->next;
        object_release(each->object, each->holds);
        free(each);
    }
    free(ended);
}

/* A graph that can be launched holds what its model does. */
static ml_cuda_error
graph_instantiate(graph **executable, const graph *model)
{
    ml_cuda_error error = ML_CUDA_Success;
    graph *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return ml_phantom_error(ML_CUDA_ErrorMemoryAllocation);
    }
    for (const held *each = model->objects; each != NULL && error == ML_CUDA_Success;
         each = each->next) {
        error = graph_hold(made, each->object, each->holds, false);
    }
    if (error != ML_CUDA_Success) {
        graph_free(made);
        return ml_phantom_error(error);
    }
    *executable = made;
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaGraphInstantiate,
          (graph * *executable, const graph *model))
{
    return graph_instantiate(executable, model);
}

ML_EXPORT(ml_cuda_error, cudaGraphInstantiateWithFlags,
          (graph * *executable, const graph *model))
{
    return graph_instantiate(executable, model);
}

ML_EXPORT(ml_cuda_error, cudaGraphDestroy, (graph * ended))
{
    graph_free(ended);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaGraphExecDestroy, (graph * ended))
{
    graph_free(ended);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaUserObjectCreate,
          (user_object * *made, void *content, host_function destroy,
           unsigned int holds))
{
    *made = malloc(sizeof **made);
    if (*made == NULL) {
        return ml_phantom_error(ML_CUDA_ErrorMemoryAllocation);
    }
    **made = (user_object){destroy, content, holds};
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaUserObjectRelease,
          (user_object * object, unsigned int holds))
{
    object_release(object, holds);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaGraphRetainUserObject,
          (graph * holder, user_object *object, unsigned int holds, unsigned int flags))
{
    enum {
        MOVE = 1 /* cudaGraphUserObjectMove */
    };

    return ml_phantom_error(graph_hold(holder, object, holds, (flags & MOVE) != 0));
}

ML_SUCCEED_UNLOCKED(cudaGraphLaunch)
ML_SUCCEED(cudaGraphUpload)

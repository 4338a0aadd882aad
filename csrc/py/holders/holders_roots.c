/* Finds the roots of the interpreter: modules, and its threads' frames.  See
 * holders_parts.h. */
#include "holders/holders_parts.h"

#include "holders/holders_frames.h"
#include "state.h"

static void
add_module(ml_walk *w, PyObject *module)
{
    if (module != NULL) {
        ml_walk_reach_object(w, module, true);
    }
}

/* The program's own module comes first: of equally short paths, the first is
 * reported. */
static void
add_modules(ml_walk *w)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *name, *module;
    Py_ssize_t position = 0;

    if (modules == NULL || !PyDict_Check(modules)) {
        return;
    }
    w->from = ml_walk_add_root(w, modules, ML_THING_MODULES);
    w->contained = true;
    add_module(w, ml_py_seek(modules, "__main__"));
    while (PyDict_Next(modules, &position, &name, &module)) {
        add_module(w, module);
    }
}

/* memlab's own frames hold the objects in question. */
static bool
is_own(const ml_frame *frame)
{
    PyObject *globals = ml_frame_globals(frame);
    PyObject *name = globals != NULL && PyDict_Check(globals)
                         ? ml_py_seek(globals, "__name__")
                         : NULL;
    const char *text =
        name != NULL && PyUnicode_CheckExact(name) ? PyUnicode_AsUTF8(name) : NULL;

    return text != NULL && strncmp(text, "memlab.", 7) == 0;
}

static int
pass_by(PyObject *Py_UNUSED(object), void *Py_UNUSED(w))
{
    return 0;
}

#if PY_VERSION_HEX < 0x030b0000
static void
forgive_lent(const void *address, void *arg)
{
    ml_walk *w = arg;
    uint32_t index;

    if (address != NULL && ml_walk_look_up(w, address, &index) &&
        w->things[index].target != ML_NO_TARGET && !w->lent) {
        w->things[index].balance--;
        w->lent = true;
    }
}
#endif

static void
add_thread(ml_walk *w, const PyThreadState *thread, bool own)
{
    const ml_frame *frame = ml_frame_first(thread);

    for (; frame != NULL && own && is_own(frame); frame = ml_frame_next(frame)) {
        /* It must not be taken for the frame of a suspended generator. */
        uint32_t index = ml_walk_add_root(w, frame, ML_THING_FRAME);
        w->things[index].state = ML_WALK_OWN;
        ml_frame_visit(frame, ml_walk_forgive, pass_by, w);
    }
#if PY_VERSION_HEX < 0x030b0000
    /* A call leaves its arguments on the caller's stack. */
    if (own && frame != NULL && frame != ml_frame_first(thread)) {
        ml_frame_visit_stack(frame, forgive_lent, w);
        w->lent = false;
    }
#endif
    for (; frame != NULL; frame = ml_frame_next(frame)) {
        ml_walk_push(w, &w->level, ml_walk_add_root(w, frame, ML_THING_FRAME));
    }
    ml_walk_push(w, &w->level, ml_walk_add_root(w, thread, ML_THING_THREAD));
}

void
ml_walk_add_roots(ml_walk *w)
{
    PyThreadState *own = PyThreadState_Get();
    PyThreadState *thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get());

    add_modules(w);
    add_thread(w, own, true);
    for (; thread != NULL; thread = PyThreadState_Next(thread)) {
        if (thread != own) {
            add_thread(w, thread, false);
        }
    }
    /* Roots of different kinds are on one level. */
    for (size_t i = 0; i < w->level.count; i++) {
        ml_walk_push(w, &w->next, w->level.at[i]);
    }
    w->level.count = 0;
}

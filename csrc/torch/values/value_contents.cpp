/* Owns the way to the phantom's contents: the preloaded library's functions. */
#include <dlfcn.h>

#include "values.h"

namespace memlab {

namespace {

template <class Function>
bool
find(const char *name, Function &function)
{
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
}

bool
find_all(Contents &all)
{
    return find("memlab_contents_use", all.use) &&
           find("memlab_contents_operator", all.operators) &&
           find("memlab_contents_get", all.get) &&
           find("memlab_contents_put", all.put) &&
           find("memlab_contents_forget", all.forget) &&
           find("memlab_contents_reading", all.reading) &&
           find("memlab_contents_answer", all.answer);
}

} // namespace

const Contents *
contents()
{
    static Contents all;
    static const bool found = find_all(all);
    return found ? &all : nullptr;
}

} // namespace memlab

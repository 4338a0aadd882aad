// What the headers of a newer g++ call and the libraries of manylinux_2_28 lack: linked into
// each bridge, seen by nothing else.
#include <new>

#define HIDDEN __attribute__((visibility("hidden")))
#define NAMED(symbol) __asm__(symbol)

// glibc 2.32: whether reference counts may do without atomic operations.  They may not.
extern "C" HIDDEN const char __libc_single_threaded = 0;

// libstdc++ of GCC 11: std::exception_ptr's counting of references, which before was inside its
// copying and its end.
extern "C" void copy_exception(void **made, void *const *from) noexcept
    NAMED("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
extern "C" void end_exception(void **held) noexcept
    NAMED("_ZNSt15__exception_ptr13exception_ptrD1Ev");
extern "C" HIDDEN void hold_exception(void **held) noexcept
    NAMED("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
extern "C" HIDDEN void release_exception(void **held) noexcept
    NAMED("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");

void
hold_exception(void **held) noexcept
{
    void *copy;
    copy_exception(&copy, held);
}

void
release_exception(void **held) noexcept
{
    end_exception(held);
}

// libstdc++ of GCC 9: a stream without an argument.
extern "C" void open_stream(void *stream, int mode) NAMED(
    "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
extern "C" HIDDEN void make_stream(void *stream)
    NAMED("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");

void
make_stream(void *stream)
{
    open_stream(stream, 1 << 4); /* std::ios_base::out */
}

namespace std {

// libstdc++ of GCC 11.
HIDDEN void
__throw_bad_array_new_length()
{
    throw bad_array_new_length();
}

} // namespace std

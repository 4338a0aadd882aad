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

// libstdc++ of GCC 9: a stream without an argument, of the strings of GCC 5 and of those before.
extern "C" void open_stream(void *stream, int mode) NAMED(
    "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
extern "C" HIDDEN void make_stream(void *stream)
    NAMED("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
extern "C" void open_old_stream(void *stream, int mode)
    NAMED("_ZNSt19basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
extern "C" HIDDEN void make_old_stream(void *stream)
    NAMED("_ZNSt19basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");

void
make_stream(void *stream)
{
    open_stream(stream, 1 << 4); /* std::ios_base::out */
}

void
make_old_stream(void *stream)
{
    open_old_stream(stream, 1 << 4);
}

// libstdc++ of GCC 11: what was written into a stream, of one that lives on and of one that
// ends.  A string that is returned is made where the caller says, and its address is what a
// call gives.
extern "C" void *read_text(void *made, const void *buffer)
    NAMED("_ZNKSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
extern "C" HIDDEN void *copy_text(void *made, const void *buffer)
    NAMED("_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
extern "C" HIDDEN void *take_text(void *made, void *buffer)
    NAMED("_ZNOSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");

void *
copy_text(void *made, const void *buffer)
{
    return read_text(made, buffer);
}

void *
take_text(void *made, void *buffer)
{
    return read_text(made, buffer);
}

namespace std {

// libstdc++ of GCC 11.
HIDDEN void
__throw_bad_array_new_length()
{
    throw bad_array_new_length();
}

} // namespace std

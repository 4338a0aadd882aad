#include "file/snapshot/unpickle.h"

#include "budget.h"
#include "literal.h"
#include "test.h"

/* A pickle written as a string literal, without its closing zero. */
#define PICKLE(literal) (literal), sizeof(literal) - 1

/* The literal of a pickle, or "error " with its code and text.  Valid until the next. */
static const char *
shown_of(const char *bytes, size_t length)
{
    static char shown[1000];
    ml_tree tree;
    ml_read_error error = {0};
    int result = ml_unpickle(bytes, length, &tree, &error);
    if (result != 0) {
        snprintf(shown, sizeof(shown), "error %d: %s", result, error.text);
        return shown;
    }
    ml_buffer out = {0};
    literal_show(&out, tree.root);
    snprintf(shown, sizeof(shown), "%.*s", (int)out.length, out.bytes);
    ml_buffer_fini(&out);
    ml_tree_fini(&tree);
    return shown;
}

static void
test_scalars(void)
{
    CHECK_STR(shown_of(PICKLE("\x80\x02N.")), "None");
    CHECK_STR(shown_of(PICKLE("\x80\x05\x88.")), "True");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x89.")), "False");
    CHECK_STR(shown_of(PICKLE("\x80\x04K\xff.")), "255");
    CHECK_STR(shown_of(PICKLE("\x80\x04M\x01\xff.")), "65281");
    CHECK_STR(shown_of(PICKLE("\x80\x04J\xfe\xff\xff\xff.")), "-2");
    CHECK_STR(shown_of(PICKLE("\x80\x04G\x3f\xf8\0\0\0\0\0\0.")), "1.5");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8c\x02hi.")), "'hi'");
    CHECK_STR(shown_of(PICKLE("\x80\x04X\x02\0\0\0hi.")), "'hi'");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8d\x02\0\0\0\0\0\0\0hi.")), "'hi'");
}

static void
test_long_integers(void)
{
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\0.")), "0");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\x01\xff.")), "-1");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\x02\xff\0.")), "255");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.")),
              "9223372036854775807");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\x08\0\0\0\0\0\0\0\x80.")),
              "-9223372036854775808");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\x09\0\0\0\0\0\0\0\x80\0.")),
              "9223372036854775808");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8b\x01\0\0\0\x05.")), "5");
    /* Of more than 64 bits: the bytes, the highest first. */
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\x09\0\0\0\0\0\0\0\x80\x01.")),
              "018000000000000000");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\x0a\1\0\0\0\0\0\0\0\x80\xfe.")),
              "fe800000000000000001");
    CHECK_STR(shown_of(PICKLE("\x80\x04\x8a\x0a\1\0\0.")),
              "error -6: byte 2, opcode 0x8a (LONG1): needs more bytes than there are: "
              "the file is cut short or damaged");
}

#define CHECK_READS(literal, text) CHECK_STR(shown_of(PICKLE(literal)), text)

static void
test_containers(void)
{
    CHECK_READS("\x80\x04](K\x01K\x02\x65K\x03\x61.", "[1,2,3]");
    CHECK_READS("\x80\x04](e.", "[]");
    CHECK_READS("\x80\x04(K\x01K\x02l.", "[1,2]");
    CHECK_READS("\x80\x04}(K\x01NK\x02\x88u.", "{1:None,2:True}");
    CHECK_READS("\x80\x04}K\x01Ns.", "{1:None}");
    CHECK_READS("\x80\x04(K\x01Nd.", "{1:None}");
    CHECK_READS("\x80\x04)K\x01\x85K\x01K\x02\x86\x87.", "((),(1),(1,2))");
    CHECK_READS("\x80\x04NN\x87.",
                "error -6: byte 4, opcode 0x87 (TUPLE3): takes more values than there "
                "are");
    CHECK_READS("\x80\x04(NNNNt.", "(None,None,None,None)");
}

static void
test_memo(void)
{
    /* The list at place 0 is used twice and is one node. */
    const char pickle[] = "\x80\x04]\x94K\x07"
                          "ah\0\x86.";
    ml_tree tree;
    CHECK_INT(ml_unpickle(pickle, sizeof(pickle) - 1, &tree, NULL), 0);
    const ml_array *pair = ml_value_as_array(tree.root);
    CHECK_UINT(pair->count, 2);
    CHECK(pair->items[0].bits == pair->items[1].bits);
    ml_tree_fini(&tree);
    CHECK_READS("\x80\x02K\x01q\0K\x02r\0\0\0\0h\0\x87.", "(1,2,2)");
    CHECK_READS(
        "\x80\x02Nr\0\0\0\x7f.",
        "error -6: byte 3, opcode 0x72 (LONG_BINPUT): stores past the next free "
        "place of the memo");
    CHECK_READS(
        "\x80\x02Nq\x01.",
        "error -6: byte 3, opcode 0x71 (BINPUT): stores past the next free place "
        "of the memo");
    CHECK_READS(
        "\x80\x02h\0.",
        "error -6: byte 2, opcode 0x68 (BINGET): refers to an empty place of the "
        "memo");
    CHECK_READS("\x80\x04\x94.",
                "error -6: byte 2, opcode 0x94 (MEMOIZE): takes more values than there "
                "are");
}

static void
test_unsafe_opcodes_are_named(void)
{
    CHECK_READS("\x80\x02"
                "cos\nsystem\n.",
                "error -7: byte 2, opcode 0x63 (GLOBAL): asks for code or objects from "
                "outside the file");
    static const struct {
        unsigned char opcode;
        const char *name;
    } unsafe[] = {
        {'c', "(GLOBAL)"},    {0x93, "(STACK_GLOBAL)"}, {'i', "(INST)"},
        {'o', "(OBJ)"},       {0x81, "(NEWOBJ)"},       {0x92, "(NEWOBJ_EX)"},
        {'R', "(REDUCE)"},    {'b', "(BUILD)"},         {0x82, "(EXT1)"},
        {0x83, "(EXT2)"},     {0x84, "(EXT4)"},         {'P', "(PERSID)"},
        {'Q', "(BINPERSID)"}, {0x97, "(NEXT_BUFFER)"},  {0x98, "(READONLY_BUFFER)"}};
    for (size_t i = 0; i < sizeof(unsafe) / sizeof(unsafe[0]); i++) {
        char pickle[] = "\x80\x04}((NN?)\0\0\0\0.";
        pickle[6] = (char)unsafe[i].opcode;
        ml_tree tree;
        ml_read_error error = {0};
        CHECK_INT(ml_unpickle(pickle, sizeof(pickle) - 1, &tree, &error), ML_EUNSAFE);
        CHECK_INT(error.code, ML_EUNSAFE);
        CHECK_UINT(error.offset, 6);
        CHECK(strstr(error.text, unsafe[i].name) != NULL);
    }
}

/* Every byte that is not one of the thirty-four known opcodes is refused, whatever the
 * stack holds. */
static void
test_no_other_opcode_is_taken(void)
{
    static const unsigned char known[] = {
        0x80, '.',  '(',  'N', 0x88, 0x89, 'J',  'K', 'M',  0x8a, 0x8b, 'G',
        'X',  0x8c, 0x8d, ']', 'a',  'e',  'l',  ')', 0x85, 0x86, 0x87, 't',
        '}',  's',  'u',  'd', 'q',  'r',  0x94, 'h', 'j',  0x95};
    int refused = 0;
    for (unsigned opcode = 0; opcode < 256; opcode++) {
        if (memchr(known, (int)opcode, sizeof(known)) != NULL) {
            continue;
        }
        char pickle[] = "\x80\x04](NNNN?\0\0\0\0\0\0\0\0.";
        pickle[8] = (char)opcode;
        ml_tree tree;
        int result = ml_unpickle(pickle, sizeof(pickle) - 1, &tree, NULL);
        CHECK(result == ML_EFORMAT || result == ML_EUNSAFE);
        refused++;
    }
    CHECK_INT(refused, 256 - 34);
}

static void
test_header(void)
{
    CHECK_READS("", "error -6: not a pickle of protocol 2 or newer");
    CHECK_READS("(lp0\n.", "error -6: not a pickle of protocol 2 or newer");
    CHECK_READS("\x80\x01N.", "error -6: pickle protocol 1 is not one of 2 to 5");
    CHECK_READS("\x80\x06N.", "error -6: pickle protocol 6 is not one of 2 to 5");
    CHECK_READS("\x80\x04\x80\x04N.",
                "error -6: byte 2, opcode 0x80 (PROTO): not an opcode of a memory "
                "snapshot");
    CHECK_READS("\x80\x04N.anything", "None");
}

#define CUT_SHORT "needs more bytes than there are: the file is cut short or damaged"

static void
test_lengths_that_lie(void)
{
    CHECK_READS("\x80\x04\x8c\x05hi.N",
                "error -6: byte 2, opcode 0x8c (SHORT_BINUNICODE): " CUT_SHORT);
    CHECK_READS("\x80\x04X\xff\xff\xff\xffhi.",
                "error -6: byte 2, opcode 0x58 (BINUNICODE): " CUT_SHORT);
    CHECK_READS("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffhi.",
                "error -6: byte 2, opcode 0x8d (BINUNICODE8): " CUT_SHORT);
    CHECK_READS("\x80\x04\x8b\xff\xff\xff\x7f.",
                "error -6: byte 2, opcode 0x8b (LONG4): " CUT_SHORT);
    CHECK_READS("\x80\x04J\x01\x02.",
                "error -6: byte 2, opcode 0x4a (BININT): " CUT_SHORT);
    CHECK_READS("\x80\x04\x95\x02\0\0\0\0\0\0\0N.", "None");
    CHECK_READS("\x80\x04\x95\x03\0\0\0\0\0\0\0N.",
                "error -6: byte 2, opcode 0x95 (FRAME): " CUT_SHORT);
}

/* What is not UTF-8 is a value like any other: whose it is, decides what it costs. */
static void
test_strings_and_bytes(void)
{
    CHECK_READS("\x80\x04\x8c\x09\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80.",
                "'\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80'");
    /* A lone surrogate, as Python's surrogatepass writes it. */
    CHECK_READS("\x80\x04\x8c\x03\xed\xa0\x80.", "'\xed\xa0\x80'");
    static const char *const broken[] = {"\x80\x04\x8c\x01\xff.",
                                         "\x80\x04\x8c\x01\xc3.",
                                         "\x80\x04\x8c\x02\xc0\x80.",
                                         "\x80\x04\x8c\x03\xe0\x9f\xbf.",
                                         "\x80\x04\x8c\x04\xf0\x8f\xbf\xbf.",
                                         "\x80\x04\x8c\x04\xf4\x90\x80\x80.",
                                         "\x80\x04\x8c\x02\xc3\x41.",
                                         "\x80\x04\x8c\x01\x80."};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        char expected[16];
        size_t length = strlen(broken[i]);
        snprintf(expected, sizeof(expected), "'%.*s'", (int)(length - 5),
                 broken[i] + 4);
        CHECK_STR(shown_of(broken[i], length), expected);
    }
    CHECK_READS("\x80\x04\x43\x02\xff\x41.", "b'\xff\x41'");
    CHECK_READS("\x80\x04\x42\x01\0\0\0\x41.", "b'\x41'");
    CHECK_READS("\x80\x04\x8e\x01\0\0\0\0\0\0\0\x41.", "b'\x41'");
}

static void
test_types_are_not_confused(void)
{
    CHECK_READS("\x80\x04]NNs.",
                "error -6: byte 5, opcode 0x73 (SETITEM): the value to extend is not a "
                "dictionary");
    CHECK_READS(
        "\x80\x04K\x01(NNu.",
        "error -6: byte 7, opcode 0x75 (SETITEMS): the value to extend is not a "
        "dictionary");
    CHECK_READS("\x80\x04}Na.",
                "error -6: byte 4, opcode 0x61 (APPEND): the value to extend is not a "
                "list");
    CHECK_READS("\x80\x04)(Ne.",
                "error -6: byte 5, opcode 0x65 (APPENDS): the value to extend is not a "
                "list");
    CHECK_READS("\x80\x04}(Nu.",
                "error -6: byte 5, opcode 0x75 (SETITEMS): a key without a value");
    CHECK_READS("\x80\x04}])Ns.",
                "error -6: byte 6, opcode 0x73 (SETITEM): the value to extend is not a "
                "dictionary");
    CHECK_READS("\x80\x04}K\x01\x85Ns.", "{(1):None}");
}

static void
test_marks(void)
{
    CHECK_READS("\x80\x04]e.",
                "error -6: byte 3, opcode 0x65 (APPENDS): no mark before it");
    CHECK_READS(
        "\x80\x04](N.",
        "error -6: byte 5, opcode 0x2e (STOP): the data end with parts left over");
    CHECK_READS(
        "\x80\x04NN.",
        "error -6: byte 4, opcode 0x2e (STOP): the data end with parts left over");
    CHECK_READS(
        "\x80\x04.",
        "error -6: byte 2, opcode 0x2e (STOP): the data end with parts left over");
    /* What lies below a mark is out of reach. */
    CHECK_READS("\x80\x04](NaN.",
                "error -6: byte 5, opcode 0x61 (APPEND): takes more values than there "
                "are");
    CHECK_READS("\x80\x04N(\x94.",
                "error -6: byte 4, opcode 0x94 (MEMOIZE): takes more values than there "
                "are");
}

static void
test_depth_and_cycles(void)
{
    char pickle[300] = "\x80\x04";
    memset(pickle + 2, ']', 70);
    memset(pickle + 2 + 64, 'a', 63);
    pickle[2 + 64 + 63] = '.';
    ml_tree tree;
    CHECK_INT(ml_unpickle(pickle, 2 + 64 + 63 + 1, &tree, NULL), 0);
    ml_tree_fini(&tree);
    memset(pickle + 2, ']', 70);
    memset(pickle + 2 + 65, 'a', 64);
    pickle[2 + 65 + 64] = '.';
    CHECK_STR(shown_of(pickle, 2 + 65 + 64 + 1),
              "error -8: the data nest deeper than 64 levels");
    memset(pickle + 2, '(', 66);
    CHECK_STR(shown_of(pickle, 80),
              "error -8: byte 67, opcode 0x28 (MARK): the data nest too deep");
    CHECK_READS("\x80\x04]\x94h\0\x61.", "error -6: a list contains itself");
    CHECK_READS("\x80\x04]\x94}K\x01h\0s\x85\x61.", "error -6: a list contains itself");
}

/* Thirty lists of two references to the one before: 2**30 leaves for whoever walks them
 * as a tree, and thirty-two nodes here with the tuple that holds them all. */
static void
test_shared_nodes_count_once(void)
{
    char pickle[1000] = "\x80\x04(]\x94";
    size_t length = 5;
    for (int i = 0; i < 30; i++) {
        const char step[] = {']', '(', 'h', (char)i, 'h', (char)i, 'e', (char)0x94};
        memcpy(pickle + length, step, sizeof(step));
        length += sizeof(step);
    }
    memcpy(pickle + length, "t.", 2);
    length += 2;
    ml_tree tree;
    ml_read_error error = {0};
    CHECK_INT(ml_unpickle(pickle, length, &tree, &error), 0);
    CHECK_UINT(tree.node_count, 32);
    CHECK_UINT(ml_value_as_array(tree.root)->count, 31);
    ml_tree_fini(&tree);
}

/* A megabyte and a half of an opcode that costs far more than its one or two bytes: the
 * limit is six times the file and 8 MiB, for everything that is alive at once. */
static void
test_bombs_meet_the_limit(void)
{
    static const char *const patterns[] = {"]",     "}",      ")",     "(",
                                           "]\x94", "]N\x61", "]]\x61"};
    static char pickle[3 << 19];
    for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++) {
        size_t step = strlen(patterns[p]);
        size_t length = 2;
        memcpy(pickle, "\x80\x04", 2);
        while (length + step < sizeof(pickle)) {
            memcpy(pickle + length, patterns[p], step);
            length += step;
        }
        pickle[length++] = '.';
        ml_tree tree;
        CHECK_INT(ml_unpickle(pickle, length, &tree, NULL), ML_ELIMIT);
    }
}

/* A list, a dict, a tuple, each kind of scalar, the memo: whole it reads, and cut
 * anywhere it fails. */
static const char rich[] =
    "\x80\x04\x95\x3a\0\0\0\0\0\0\0}\x94(\x8c\x01\x61\x94]\x94(K"
    "\x01M\x01\x01J\0\0\0\x80\x8a\x05\0\0\0\0\x01"
    "e\x8c\x01\x62\x94(NNN\x88t\x94\x8c\x01\x63\x94G\0\0\0\0\0\0\0"
    "\0\x8c\x01\x64h\x01u.";

static void
test_truncation(void)
{
    CHECK_STR(shown_of(rich, sizeof(rich) - 1),
              "{'a':[1,257,-2147483648,4294967296],'b':(None,None,None,True),'c':0.0,"
              "'d':'a'}");
    for (size_t length = 0; length < sizeof(rich) - 1; length++) {
        /* Of its own size, so that a sanitizer sees any read past it. */
        char *cut = ml_alloc(length);
        memcpy(cut, rich, length);
        ml_tree tree;
        ml_read_error error = {0};
        int result = ml_unpickle(cut, length, &tree, &error);
        ml_free(cut);
        CHECK_INT(result, ML_EFORMAT);
        CHECK(error.text[0] != '\0');
    }
}

static void
test_without_memory(void)
{
    for (long budget = 0;; budget++) {
        budget_begin(budget);
        ml_tree tree;
        ml_read_error error = {0};
        int result = ml_unpickle(rich, sizeof(rich) - 1, &tree, &error);
        if (result == 0) {
            ml_tree_fini(&tree);
        }
        budget_end();
        CHECK_INT(budget_alive, 0);
        if (result == 0) {
            CHECK(budget >= 3);
            break;
        }
        CHECK_INT(result, ML_ENOMEM);
        CHECK_INT(error.code, ML_ENOMEM);
    }
}

/* Lists of every length around the size from which they have memory of their own. */
static void
test_long_lists(void)
{
    static char pickle[100000];
    for (size_t count = 500; count < 1600; count += 7) {
        size_t length = 3;
        memcpy(pickle, "\x80\x04]", 3);
        for (size_t i = 0; i < count; i++) {
            bool marks = i % 100 == 0;
            if (marks) {
                pickle[length++] = '(';
            }
            pickle[length++] = 'M';
            pickle[length++] = (char)(unsigned char)i;
            pickle[length++] = (char)(unsigned char)(i >> 8);
            if (i % 100 == 99 || i + 1 == count) {
                pickle[length++] = 'e';
            }
        }
        pickle[length++] = '.';
        ml_tree tree;
        CHECK_INT(ml_unpickle(pickle, length, &tree, NULL), 0);
        const ml_array *list = ml_value_as_array(tree.root);
        CHECK_UINT(list->count, count);
        for (size_t i = 0; i < count; i++) {
            CHECK_INT(ml_value_as_int(list->items[i]), (int64_t)i);
        }
        ml_tree_fini(&tree);
    }
}

int
main(void)
{
    RUN(test_scalars);
    RUN(test_long_integers);
    RUN(test_containers);
    RUN(test_memo);
    RUN(test_unsafe_opcodes_are_named);
    RUN(test_no_other_opcode_is_taken);
    RUN(test_header);
    RUN(test_lengths_that_lie);
    RUN(test_strings_and_bytes);
    RUN(test_types_are_not_confused);
    RUN(test_marks);
    RUN(test_depth_and_cycles);
    RUN(test_shared_nodes_count_once);
    RUN(test_bombs_meet_the_limit);
    RUN(test_truncation);
    RUN(test_without_memory);
    RUN(test_long_lists);
    return TEST_RESULT();
}

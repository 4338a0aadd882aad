/* Trees of modules worked out by hand. */
#include "analysis/answers/module_tree.h"

#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define MOST 64

typedef struct modules {
    sample s;
    ml_peak_module list[MOST];
    size_t count;
} modules;

static void
begin(modules *m)
{
    sample_begin(&m->s);
    m->count = 0;
}

static void
add(modules *m, const char *path, uint64_t bytes)
{
    m->list[m->count++] = (ml_peak_module){
        .module = sample_string(m->s.recording, path), .bytes = bytes, .blocks = 1};
}

static void
add_reason(modules *m, enum ml_no_module reason, uint64_t bytes)
{
    m->list[m->count++] =
        (ml_peak_module){.no_module = (uint8_t)reason, .bytes = bytes, .blocks = 2};
}

/* The nodes of TREE, depth first: "PATH xMODULES OWN/ALL" each, a space behind it. */
static void
write_tree(const ml_module_tree *tree, uint32_t node, ml_buffer *out)
{
    const ml_module_node *of = &tree->nodes[node];
    char text[128];
    if (node != 0 && of->no_module == 0) {
        ml_module_path(tree, node, out);
    }
    int length =
        snprintf(text, sizeof(text), "%s x%u %llu/%llu; ",
                 ml_no_module_text(of->no_module), of->modules,
                 (unsigned long long)of->own.bytes, (unsigned long long)of->all.bytes);
    ml_buffer_append(out, text, (size_t)length);
    for (uint32_t i = 0; i < of->children; i++) {
        write_tree(tree, of->first + i, out);
    }
}

#define CHECK_TREE(m, want) \
    do { \
        ml_module_tree *tree_; \
        ml_buffer out_ = {0}; \
        CHECK_INT(ml_module_tree_new((m)->s.recording, (m)->list, (m)->count, &tree_), \
                  0); \
        write_tree(tree_, 0, &out_); \
        ml_module_tree_free(tree_); \
        int same_ = \
            out_.length == strlen(want) && memcmp(out_.bytes, want, out_.length) == 0; \
        if (!same_) { \
            fprintf(stderr, "%.*s\n", (int)out_.length, out_.bytes); \
        } \
        ml_buffer_fini(&out_); \
        CHECK(same_); \
    } while (0)

static void
test_layers(void)
{
    static modules m;
    begin(&m);
    add(&m, "net.embed", 100);
    add(&m, "net.layers.0.mlp", 40);
    add(&m, "net.layers.1.mlp", 50);
    add(&m, "net.layers.1.attn", 7);
    add(&m, "net.layers.10.mlp", 60);
    add(&m, "net.layers.10", 3);
    add(&m, "net", 5);
    CHECK_TREE(&m, " x0 0/265; net x1 5/265; net.layers x1 0/160; "
                   "net.layers.* x3 3/160; net.layers.*.mlp x3 150/150; "
                   "net.layers.*.attn x1 7/7; net.embed x1 100/100; ");
    sample_end(&m.s);
}

/* Experts in layers: both numbers at once. */
static void
test_nested(void)
{
    static modules m;
    begin(&m);
    add(&m, "l.0.experts.0.up", 1);
    add(&m, "l.0.experts.1.up", 2);
    add(&m, "l.1.experts.0.up", 4);
    add(&m, "l.1.experts.1.down", 8);
    CHECK_TREE(&m, " x0 0/15; l x1 0/15; l.* x2 0/15; l.*.experts x2 0/15; "
                   "l.*.experts.* x4 0/15; l.*.experts.*.down x1 8/8; "
                   "l.*.experts.*.up x3 7/7; ");
    sample_end(&m.s);
}

/* Without parts of their own they are one node, below which each is; the star is not part of
 * their paths. */
static void
test_sequential(void)
{
    static modules m;
    begin(&m);
    add(&m, "0", 1);
    add(&m, "2", 4);
    add(&m, "10", 2);
    CHECK_TREE(&m, " x0 0/7; * x3 0/7; 2 x1 4/4; 10 x1 2/2; 0 x1 1/1; ");
    m.count = 0;
    add(&m, "h.0.mlp.0", 1);
    add(&m, "h.1.mlp.0", 2);
    add(&m, "h.1.mlp.2", 8);
    CHECK_TREE(&m, " x0 0/11; h x1 0/11; h.* x2 0/11; h.*.mlp x2 0/11; "
                   "h.*.mlp.* x3 0/11; h.*.mlp.2 x1 8/8; h.*.mlp.0 x2 3/3; ");
    sample_end(&m.s);
}

/* Parts of one name make alike, directly or by another between. */
static void
test_unlike(void)
{
    static modules m;
    begin(&m);
    add(&m, "0.conv", 1);
    add(&m, "1.conv", 2);
    add(&m, "1.norm", 2);
    add(&m, "3.norm", 3);
    add(&m, "2.attn", 4);
    add(&m, "4.attn", 5);
    CHECK_TREE(&m, " x0 0/17; [2-4] x2 0/9; [2-4].attn x2 9/9; [0-3] x3 0/8; "
                   "[0-3].norm x2 5/5; [0-3].conv x2 3/3; ");
    /* One alone keeps its number. */
    m.count = 0;
    add(&m, "0.encoder", 1);
    add(&m, "1.decoder", 2);
    add(&m, "7", 4);
    CHECK_TREE(&m, " x0 0/7; 7 x1 4/4; 1 x1 0/2; 1.decoder x1 2/2; 0 x1 0/1; "
                   "0.encoder x1 1/1; ");
    sample_end(&m.s);
}

/* torchvision's layers are names and numbers. */
static void
test_named(void)
{
    static modules m;
    begin(&m);
    add(&m, "layers.encoder_layer_0.mlp", 1);
    add(&m, "layers.encoder_layer_1.mlp", 2);
    add(&m, "layers.encoder_layer_10.mlp", 4);
    add(&m, "layers.encoder_layer_10.attn", 8);
    add(&m, "layers.encoder_layer_10", 16);
    add(&m, "layers.norm_1", 32);
    add(&m, "layers.norm_2", 64);
    add(&m, "layers.norm_3", 128);
    CHECK_TREE(&m, " x0 0/255; layers x1 0/255; layers.norm_3 x1 128/128; "
                   "layers.norm_2 x1 64/64; layers.norm_1 x1 32/32; "
                   "layers.encoder_layer_* x3 16/31; "
                   "layers.encoder_layer_*.attn x1 8/8; "
                   "layers.encoder_layer_*.mlp x3 7/7; ");
    /* Two are a pair, and of another name, others. */
    m.count = 0;
    add(&m, "q1.fc", 1);
    add(&m, "q2.fc", 2);
    add(&m, "k1.fc", 4);
    CHECK_TREE(&m, " x0 0/7; k1 x1 0/4; k1.fc x1 4/4; q2 x1 0/2; q2.fc x1 2/2; "
                   "q1 x1 0/1; q1.fc x1 1/1; ");
    /* Stages, whose layers are alike, and two sorts of one name. */
    m.count = 0;
    add(&m, "layer1.0.conv1", 1);
    add(&m, "layer1.1.conv1", 2);
    add(&m, "layer2.0.conv1", 4);
    add(&m, "layer3.0.conv1", 8);
    CHECK_TREE(&m, " x0 0/15; layer3 x1 0/8; layer3.0 x1 0/8; layer3.0.conv1 x1 8/8; "
                   "layer2 x1 0/4; layer2.0 x1 0/4; layer2.0.conv1 x1 4/4; "
                   "layer1 x1 0/3; layer1.* x2 0/3; layer1.*.conv1 x2 3/3; ");
    m.count = 0;
    for (unsigned i = 0; i < 6; i++) {
        char path[16];
        snprintf(path, sizeof(path), "b%u.%s", i, i < 3 ? "conv" : "attn");
        add(&m, path, 1 + i);
    }
    CHECK_TREE(&m, " x0 0/21; b[3-5] x3 0/15; b[3-5].attn x3 15/15; b[0-2] x3 0/6; "
                   "b[0-2].conv x3 6/6; ");
    sample_end(&m.s);
}

/* A layer in which nothing else holds memory is like the others: if the stacks of the
 * recording say so, or if most have parts. */
static void
test_bare(void)
{
    static modules m;
    begin(&m);
    add(&m, "h.0.mlp", 1);
    add(&m, "h.1.mlp", 2);
    add(&m, "h.2", 4);
    CHECK_TREE(&m, " x0 0/7; h x1 0/7; h.* x3 4/7; h.*.mlp x2 3/3; ");
    m.count = 0;
    add(&m, "h.0.mlp", 1);
    add(&m, "h.2", 4);
    CHECK_TREE(&m, " x0 0/5; h x1 0/5; h.2 x1 4/4; h.0 x1 0/1; h.0.mlp x1 1/1; ");
    sample_call(m.s.recording, 0, "m.py", 3, "forward", "h.2.mlp");
    CHECK_TREE(&m, " x0 0/5; h x1 0/5; h.* x2 4/5; h.*.mlp x1 1/1; ");
    sample_end(&m.s);
}

static void
test_outside(void)
{
    static modules m;
    begin(&m);
    add(&m, "net", 1);
    add_reason(&m, ML_NO_MODULE_LIBRARY, 9);
    add_reason(&m, ML_NO_MODULE_STACK, 3);
    CHECK_TREE(&m, " x0 0/13; workspace of a library x0 9/9; no Python stack x0 3/3; "
                   "net x1 1/1; ");
    ml_module_tree *tree;
    CHECK_INT(ml_module_tree_new(m.s.recording, m.list, m.count, &tree), 0);
    CHECK_UINT(tree->nodes[0].all.blocks, 5);
    CHECK_UINT(tree->of_reason[ML_NO_MODULE_LIBRARY], 1);
    CHECK_UINT(tree->of_reason[ML_NO_MODULE_STACK], 2);
    CHECK_UINT(tree->of_reason[ML_NO_MODULE_CALL], 0);
    CHECK_UINT(tree->of_module[m.list[0].module], 3);
    ml_module_tree_free(tree);
    m.count = 0;
    CHECK_TREE(&m, " x0 0/0; ");
    sample_end(&m.s);
}

/* Paths of any length and without characters, as a file may have them. */
static void
test_odd(void)
{
    static modules m;
    static char deep[4 * ML_MODULE_DEPTH + 1];
    begin(&m);
    for (size_t i = 0; i < sizeof(deep) - 1; i++) {
        deep[i] = i % 2 == 0 ? 'a' : '.';
    }
    add(&m, deep, 1);
    deep[2 * ML_MODULE_DEPTH + 1] = '\0';
    add(&m, deep, 2);
    ml_module_tree *tree;
    CHECK_INT(ml_module_tree_new(m.s.recording, m.list, m.count, &tree), 0);
    CHECK_UINT(tree->count, ML_MODULE_DEPTH + 1);
    CHECK_UINT(tree->nodes[ML_MODULE_DEPTH].own.bytes, 3);
    ml_buffer path = {0};
    ml_module_path(tree, ML_MODULE_DEPTH, &path);
    CHECK_UINT(path.length, 2 * ML_MODULE_DEPTH - 1);
    ml_buffer_fini(&path);
    ml_module_tree_free(tree);
    m.count = 0;
    add(&m, "a..b", 1);
    add(&m, "a.", 2);
    CHECK_TREE(&m, " x0 0/3; a x1 0/3; a. x1 2/3; a..b x1 1/1; ");
    sample_end(&m.s);
}

static void
test_no_memory(void)
{
    static modules m;
    begin(&m);
    char path[64];
    for (int i = 0; i < 20; i++) {
        snprintf(path, sizeof(path), "h.l%d.mlp.%d.w%d", i, i % 3, i % 7);
        add(&m, path, (uint64_t)i);
    }
    add_reason(&m, ML_NO_MODULE_LIBRARY, 9);
    int error = ML_ENOMEM;
    long budget = 0;
    for (; error == ML_ENOMEM && budget < 1000; budget++) {
        ml_module_tree *tree = NULL;
        budget_begin(budget);
        error = ml_module_tree_new(m.s.recording, m.list, m.count, &tree);
        if (error == 0) {
            ml_module_tree_free(tree);
        }
        budget_end();
        CHECK_INT(budget_alive, 0);
    }
    CHECK_INT(error, 0);
    CHECK(budget > 10);
    sample_end(&m.s);
}

int
main(void)
{
    RUN(test_layers);
    RUN(test_nested);
    RUN(test_sequential);
    RUN(test_unlike);
    RUN(test_named);
    RUN(test_bare);
    RUN(test_outside);
    RUN(test_odd);
    RUN(test_no_memory);
    return TEST_RESULT();
}

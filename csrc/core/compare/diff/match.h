/* Pairs the sites of two recordings; the program may have been edited between them.
 *
 * Owns the pairing, from the surest rule to the least sure.  Both recordings give a
 * site's file, function, line, module and operation (sites.h).  An edit above a line
 * changes its number, a function may be renamed, a file moved to another folder, and one
 * line may allocate several times.  Therefore:
 *
 *   1. Files are paired by the longest common tail of their paths, then by content.
 *   2. Lines of two paired files are paired in order, as a longest common subsequence
 *      weighted by similarity: function, modules, operations, categories and sizes.  Ties
 *      go to line numbers that moved by the same count.
 *   3. Lines that are left are paired across files, the most similar first.
 *   4. Sites of two paired lines are paired by module and operation, then by module, then,
 *      for modules that the other recording lacks, by operation.
 *   5. Sites that are left are paired by function, module and operation, then by module
 *      and operation.
 *
 * A site is never paired with one of another module if both recordings have that
 * module. */
#ifndef ML_MATCH_H
#define ML_MATCH_H

#include "compare/diff/sites.h"

/* The rule by which two lines were paired, the surest first; JSON keys. */
#define ML_MATCH_RULES(XX) \
    XX(NONE, "")             /* it has no partner */ \
    XX(LINE, "line")         /* the same file, function and line */ \
    XX(ORDER, "order")       /* the same file and function; another line, in order */ \
    XX(FUNCTION, "function") /* the same file; the function has another name */ \
    XX(FILE, "file")         /* another file */ \
    XX(MODULE, "module")     /* the module and operation alone */

enum ml_match_rule {
#define XX(name, text) ML_MATCH_##name,
    ML_MATCH_RULES(XX)
#undef XX
    ML_MATCH_RULE_COUNT
};

typedef struct ml_match {
    /* By site of each side: the other's site, or ML_NO_SITE; owned. */
    uint32_t *partner[2];
    /* By site of each side: a site of its line's partner, or ML_NO_SITE; owned.  A site
     * without a partner may have one. */
    uint32_t *beside[2];
    uint8_t *rule[2]; /* by site of each side: enum ml_match_rule; owned */
} ml_match;

/* Pairs BEFORE and AFTER, whose texts are of one ml_string_pool TEXTS.  SAME_CODE: both
 * ran the same files, so that lines identify code.  0, or ML_ENOMEM with nothing to
 * free. */
int ml_match_init(ml_match *match, const ml_string_pool *texts, const ml_sites *before,
                  const ml_sites *after, bool same_code);
void ml_match_fini(ml_match *match);

const char *ml_match_rule_text(unsigned rule); /* "" for an unknown one */

#endif

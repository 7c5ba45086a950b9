#include "source.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A piece of the source. */
typedef struct { const char *start; int length; } Span;
typedef struct { Span name, bounds, parameters; } Header;

static const char *skip(const char *at) {
    while (isspace((unsigned char)*at)) at++;
    return at;
}
static int is_part(char c) { return isalnum((unsigned char)c) || c == '_'; }
static Span word(const char *at) {
    int length = 0;
    while (is_part(at[length])) length++;
    return (Span){at, length};
}
static int is(Span span, const char *text) { return span.length == (int)strlen(text) && !strncmp(span.start, text, span.length); }

/* What is between a parenthesis and the one that closes it; empty and without a start if none does. */
static Span enclosed(const char *open) {
    const char *at = open;
    for (int depth = 0; *at; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0) return (Span){open + 1, (int)(at - open - 1)};
    }
    return (Span){0, 0};
}

/* The header of the kernel that begins with `__global__`. False if it is none. */
static int read_header(const char *at, Header *header) {
    *header = (Header){.bounds = {"1024", 4}};
    if (!is(word(at), "__global__")) return 0;
    while (1) {
        Span one = word(at = skip(at));
        if (one.length == 0) return 0;
        at = skip(one.start + one.length);
        if (*at != '(') continue;
        Span inside = enclosed(at);
        if (!inside.start) return 0;
        at = inside.start + inside.length + 1;
        if (is(one, "__launch_bounds__")) {
            header->bounds = inside;
        } else {
            header->name = one;
            header->parameters = inside;
            return 1;
        }
    }
}

/* The next parameter's type, without its name; moves on behind its comma. */
static Span next_type(Span *rest) {
    const char *end = memchr(rest->start, ',', rest->length);
    if (!end) end = rest->start + rest->length;
    Span type = {rest->start, (int)(end - rest->start)};
    int taken = type.length + (type.length < rest->length);
    *rest = (Span){rest->start + taken, rest->length - taken};
    while (type.length && isspace((unsigned char)type.start[type.length - 1])) type.length--;
    while (type.length && is_part(type.start[type.length - 1])) type.length--;
    return type;
}

/* Static shared memory is in a section of the kernel's name, whose ends the linker knows. */
static void write_before_kernel(FILE *file, Span name, unsigned line) {
    fprintf(file, "\n#undef __shared__\n#define __shared__ static __attribute__((used, section(\"shared_%.*s\")))\n#line %u \"kernel\"\n",
            name.length, name.start, line);
}

/* `extern __shared__ T name[];` becomes a pointer. Returns what is behind it, or 0. */
static const char *write_dynamic(FILE *file, const char *at) {
    const char *end = strchr(at, ';'), *bracket = strchr(at, '[');
    if (!end || !bracket || bracket > end) return 0;
    const char *name = bracket;
    while (name > at && is_part(name[-1])) name--;
    fprintf(file, "%.*s *%.*s = model_dynamic()", (int)(name - at), at, (int)(bracket - name), name);
    return end;
}

static unsigned write_caller(FILE *file, const Header *header) {
    Span name = header->name, rest = header->parameters;
    unsigned count = 0;
    if (is(word(skip(rest.start)), "void") || skip(rest.start) >= rest.start + rest.length) rest.length = 0;
    for (; rest.length; count++) {
        Span type = next_type(&rest);
        fprintf(file, "typedef %.*s model_%.*s_%u;\n", type.length, type.start, name.length, name.start, count);
    }
    fprintf(file, "static __attribute__((no_sanitize_thread)) void model_call_%.*s(void **values) {\n    %.*s(", name.length, name.start, name.length,
            name.start);
    for (unsigned i = 0; i < count; i++)
        fprintf(file, "%s*(model_%.*s_%u *)values[%u]", i ? ", " : "", name.length, name.start, i, i);
    fprintf(file, ");\n}\nstatic const size_t model_sizes_%.*s[] = {", name.length, name.start);
    for (unsigned i = 0; i < count; i++) fprintf(file, "sizeof(model_%.*s_%u), ", name.length, name.start, i);
    fprintf(file, "0};\n");
    fprintf(file, "extern char __start_shared_%.*s[] MODEL_SECTION_END, __stop_shared_%.*s[] MODEL_SECTION_END;\n", name.length, name.start,
            name.length, name.start);
    return count;
}

static void write_row(FILE *file, const Header *header, unsigned parameters) {
    Span name = header->name, bounds = header->bounds;
    fprintf(file, "    {\"%.*s\", model_call_%.*s, model_sizes_%.*s, %u, MODEL_FIRST(%.*s),\n", name.length, name.start, name.length, name.start,
            name.length, name.start, parameters, bounds.length, bounds.start);
    fprintf(file, "     __start_shared_%.*s, __stop_shared_%.*s, MODEL_LIBRARY},\n", name.length, name.start, name.length, name.start);
}

const char *write_as_c(FILE *file, const char *source) {
    static const char KERNEL[] = "extern \"C\"", DYNAMIC[] = "extern __shared__";
    Header *headers = 0;
    unsigned count = 0, line = 1;
    fprintf(file, "#include \"%s\"\n#line 1 \"kernel\"\n", SHIM);
    for (const char *at = source; *at;) {
        Header header;
        if (!strncmp(at, KERNEL, strlen(KERNEL)) && read_header(skip(at + strlen(KERNEL)), &header)) {
            headers = realloc(headers, (count + 1) * sizeof *headers);
            headers[count++] = header;
            write_before_kernel(file, header.name, line);
            at += strlen(KERNEL);
        } else if (!strncmp(at, DYNAMIC, strlen(DYNAMIC))) {
            at = write_dynamic(file, at + strlen(DYNAMIC));
            if (!at) return "no array behind `extern __shared__`";
        } else {
            line += *at == '\n';
            fputc(*at++, file);
        }
    }
    unsigned *parameters = malloc((count + 1) * sizeof *parameters);
    fprintf(file, "\n#line 1 \"table\"\n");
    for (unsigned i = 0; i < count; i++) parameters[i] = write_caller(file, &headers[i]);
    fprintf(file, "const ModelKernel model_kernels[] = {\n");
    for (unsigned i = 0; i < count; i++) write_row(file, &headers[i], parameters[i]);
    fprintf(file, "    {0}\n};\n");
    free(parameters);
    free(headers);
    return count ? 0 : "no kernel: none begins with `extern \"C\" __global__`";
}

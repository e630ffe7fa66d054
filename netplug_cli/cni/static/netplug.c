/*
 * The executables netplug and netplug-ipam as a static program: the node process does the job; where none answers, this
 * process executes the standalone program, the file NAME-standalone beside it.
 *
 * netplug_core/cni/wire.py describes the protocol, netplug_cli/cni/client.py is the same client in Python. VERSION and
 * a call without variables are answered here, byte for byte as there. versions.h is generated.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "versions.h"

#ifndef TAKE_MS
#define TAKE_MS 10000 /* for how long a request waits until the node process takes it */
#endif
#ifndef REPLY_MS
#define REPLY_MS 120000 /* for how long a call waits for its reply in all */
#endif
#define DEFAULT_PATH "/run/netplug/node.sock"
#define HEADER_LENGTH 16
#define START_LENGTH 13 /* of a reply: T, exit status, and the lengths of both texts */
#define MAX_DEPTH 1000  /* of JSON */
#define MAX_DIGITS 4300 /* of an integer in JSON: Python refuses longer ones */

struct text {
    unsigned char *data;
    size_t length, room;
};

/* End with the error object of code 11, which means to try again later. Nothing in the texts has to be escaped. */
static void fail(const char *version, const char *message, const char *details)
{
    dprintf(1, "{\n    \"cniVersion\": \"%s\",\n    \"code\": 11,\n    \"msg\": \"%s\",\n    \"details\": \"%s\"\n}\n",
            version, message, details);
    _exit(1);
}

static void append(struct text *text, const void *data, size_t length)
{
    if (length > text->room - text->length) {
        size_t room = text->room + text->room / 2 + length + 4096;
        unsigned char *grown = realloc(text->data, room);
        if (grown == NULL)
            fail(NEWEST_VERSION, "this node has no memory left; free some", strerror(ENOMEM));
        text->data = grown;
        text->room = room;
    }
    if (length > 0)
        memcpy(text->data + text->length, data, length);
    text->length += length;
}

/* Whether all of a text could be written. */
static int write_all(int descriptor, const unsigned char *data, size_t length)
{
    while (length > 0) {
        ssize_t written = write(descriptor, data, length);
        if (written < 0)
            return 0;
        data += written;
        length -= (size_t)written;
    }
    return 1;
}

/* Read all of standard input; nothing from a terminal. Whether it could be read. */
static int read_stdin(struct text *text)
{
    unsigned char chunk[65536];
    ssize_t length = 0;
    while (!isatty(0) && (length = read(0, chunk, sizeof chunk)) > 0)
        append(text, chunk, (size_t)length);
    return length == 0;
}

/* --- the version that a configuration names: valid JSON, as Python reads it -------------------------------------- */

struct json {
    const unsigned char *at, *end;
    const char *version;
};

static int is_utf8(const struct text *text)
{
    for (size_t at = 0; at < text->length;) {
        unsigned char first = text->data[at++];
        unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        if (first > 0xf4 || (first >= 0x80 && first < 0xc2))
            return 0;
        for (; more > 0; more--, at++, low = 0x80, high = 0xbf)
            if (at >= text->length || text->data[at] < low || text->data[at] > high)
                return 0;
    }
    return 1;
}

static int peek(const struct json *json)
{
    return json->at < json->end ? *json->at : -1;
}

static int take(struct json *json)
{
    return json->at < json->end ? *json->at++ : -1;
}

static int accept_word(struct json *json, const char *word)
{
    size_t length = strlen(word);
    int is_there = (size_t)(json->end - json->at) >= length && memcmp(json->at, word, length) == 0;
    json->at += is_there ? length : 0;
    return is_there;
}

static int skip_space(struct json *json)
{
    while (peek(json) == ' ' || peek(json) == '\t' || peek(json) == '\n' || peek(json) == '\r')
        take(json);
    return peek(json);
}

/* The character that an escape stands for, -1 if it is none. */
static int read_escape(struct json *json)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    int found = take(json), value = 0;
    const char *place = found > 0 ? strchr(escapes, found) : NULL;
    if (place != NULL)
        return meant[place - escapes];
    for (int i = 0; i < 4; i++) {
        int digit = found == 'u' ? take(json) : -1;
        int is_letter = (digit | 32) >= 'a' && (digit | 32) <= 'f';
        if (!is_letter && (digit < '0' || digit > '9'))
            return -1;
        value = value * 16 + (is_letter ? (digit | 32) - 'a' + 10 : digit - '0');
    }
    return value;
}

/* Read a string after its quote. The copy is empty if the string is not short and printable ASCII. */
static int read_string(struct json *json, char copy[16])
{
    size_t length = 0;
    int is_plain = 1, found;
    while ((found = take(json)) != '"') {
        if (found < 0x20 || (found == '\\' && (found = read_escape(json)) < 0))
            return 0;
        is_plain = is_plain && found >= 0x20 && found < 0x7f && length < 15;
        if (is_plain)
            copy[length++] = (char)found;
    }
    copy[is_plain ? length : 0] = '\0';
    return 1;
}

static size_t skip_digits(struct json *json)
{
    const unsigned char *begin = json->at;
    while (peek(json) >= '0' && peek(json) <= '9')
        take(json);
    return (size_t)(json->at - begin);
}

static int skip_number(struct json *json)
{
    accept_word(json, "-");
    size_t digits = accept_word(json, "0") ? 1 : skip_digits(json);
    int has_fraction = digits > 0 && accept_word(json, ".");
    if (digits == 0 || (has_fraction && skip_digits(json) == 0))
        return 0;
    if (!accept_word(json, "e") && !accept_word(json, "E"))
        return has_fraction || digits <= MAX_DIGITS;
    if (!accept_word(json, "+"))
        accept_word(json, "-");
    return skip_digits(json) > 0;
}

static const char *find_version(const char *text)
{
    for (size_t i = 0; i < sizeof SUPPORTED_VERSIONS / sizeof *SUPPORTED_VERSIONS; i++)
        if (strcmp(SUPPORTED_VERSIONS[i], text) == 0)
            return SUPPORTED_VERSIONS[i];
    return NEWEST_VERSION;
}

/* Read a value; of a string, the copy is its text, otherwise it is empty. */
static int read_value(struct json *json, char copy[16], int depth)
{
    char name[16] = "", value[16];
    int found = skip_space(json), end = found == '{' ? '}' : ']';
    copy[0] = '\0';
    if (found != '"' && found != '{' && found != '[')
        return accept_word(json, "null") || accept_word(json, "true") || accept_word(json, "false")
            || accept_word(json, "NaN") || accept_word(json, "Infinity") || accept_word(json, "-Infinity")
            || skip_number(json);
    take(json);
    if (found == '"')
        return read_string(json, copy);
    if (skip_space(json) == end)
        return take(json) == end;
    do {
        if (end == '}' && (skip_space(json) != '"' || take(json) < 0 || !read_string(json, name)
                           || skip_space(json) != ':' || take(json) < 0))
            return 0;
        if (depth == MAX_DEPTH || !read_value(json, value, depth + 1))
            return 0;
        if (end == '}' && depth == 1 && strcmp(name, "cniVersion") == 0)
            json->version = find_version(value);
        skip_space(json);
        found = take(json);
    } while (found == ',');
    return found == end;
}

/* The version that a configuration names if it is supported, otherwise the newest. */
static const char *requested_version(const struct text *input)
{
    struct json json = {input->data, input->data + input->length, NEWEST_VERSION};
    char ignored[16];
    if (input->length == 0 || !is_utf8(input) || !read_value(&json, ignored, 1) || skip_space(&json) != -1)
        return NEWEST_VERSION;
    return json.version;
}

/* --- the protocol ------------------------------------------------------------------------------------------------ */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint32_t number_at(const unsigned char *data)
{
    uint32_t number;
    memcpy(&number, data, sizeof number);
    return ntohl(number);
}

/* The length of the whole reply, as far as its beginning says it. */
static uint64_t length_of(const struct text *reply)
{
    if (reply->length < START_LENGTH)
        return START_LENGTH;
    return (uint64_t)START_LENGTH + number_at(reply->data + 5) + number_at(reply->data + 9);
}

/* Whether a socket is ready before a point of time. */
static int wait_for(int connection, short events, int64_t end_ms)
{
    struct pollfd polled = {connection, events, 0};
    int64_t left = end_ms - now_ms();
    return left > 0 && poll(&polled, 1, (int)left) > 0;
}

/* Send a request, with a descriptor unless it is -1. Whether it could be sent whole. */
static int send_request(int connection, const struct text *request, int descriptor, int64_t end_ms)
{
    _Alignas(struct cmsghdr) char ancillary[CMSG_SPACE(sizeof(int))] = {0};
    for (size_t sent = 0; sent < request->length;) {
        struct iovec part = {request->data + sent, request->length - sent};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (sent == 0 && descriptor >= 0) {
            message.msg_control = ancillary;
            message.msg_controllen = sizeof ancillary;
            struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
            rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
        }
        ssize_t length = sendmsg(connection, &message, MSG_NOSIGNAL);
        if (length < 0 && !(errno == EAGAIN && wait_for(connection, POLLOUT, end_ms)))
            return 0;
        sent += length > 0 ? (size_t)length : 0;
    }
    return 1;
}

/* Add to a reply what comes until it is whole or breaks off. */
static void receive_reply(int connection, struct text *reply, int is_open, int64_t begin_ms)
{
    unsigned char chunk[65536];
    while (reply->length < length_of(reply)) {
        uint64_t left = length_of(reply) - reply->length;
        ssize_t length = recv(connection, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk, 0);
        int64_t end_ms = begin_ms + (reply->length > 0 ? REPLY_MS : TAKE_MS);
        if (length < 0 && is_open && !(errno == EAGAIN && wait_for(connection, POLLIN, end_ms))) {
            /* The server cannot send any more. What it sent before is still there and counts. */
            shutdown(connection, SHUT_RDWR);
            is_open = 0;
        } else if (length == 0 || (length < 0 && !is_open)) {
            return;
        } else if (length > 0) {
            append(reply, chunk, chunk[0] == 'T' || reply->length > 0 ? (size_t)length : 0);
            if (reply->length == 0)
                return; /* of another protocol */
        }
    }
}

/* What the node process replies, as far as it comes; empty if it does not take the request. */
static void ask(const char *path, const char *program, const struct text *input, struct text *reply)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static struct text request;
    int64_t begin_ms = now_ms();
    append(&request, "netplug\1 numbers", HEADER_LENGTH);
    append(&request, program, strlen(program) + 1);
    for (char **variable = environ; *variable != NULL; variable++)
        if (strchr(*variable, '=') > *variable)
            append(&request, *variable, strlen(*variable) + 1);
    append(&request, "", 1);
    append(&request, input->data, input->length);
    uint32_t numbers[] = {htonl(REPLY_MS), htonl((uint32_t)(request.length - HEADER_LENGTH))};
    memcpy(request.data + HEADER_LENGTH - sizeof numbers, numbers, sizeof numbers);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(address.sun_path, path, strnlen(path, sizeof address.sun_path));
    if (request.length - HEADER_LENGTH <= MAX_BODY_LENGTH && strlen(path) < sizeof address.sun_path
        && connect(connection, (struct sockaddr *)&address, sizeof address) == 0) {
        /* Without O_NONBLOCK, a path that is a pipe would never be opened. */
        const char *netns = getenv("CNI_NETNS");
        int namespace = netns == NULL ? -1 : open(netns, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        int is_sent = send_request(connection, &request, namespace, begin_ms + TAKE_MS);
        close(namespace);
        if (!is_sent)
            shutdown(connection, SHUT_RDWR);
        receive_reply(connection, reply, is_sent, begin_ms);
    }
    close(connection);
}

/* --- a call ------------------------------------------------------------------------------------------------------ */

/* Execute the standalone program, with arguments if there are any. Input that was read becomes a file in memory. */
static void execute_standalone(const char *program, char **argv, const struct text *input, int is_resumed)
{
    static char path[8192];
    char *alone[] = {path, is_resumed ? "--resume" : NULL, NULL};
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    char *name = length > 0 ? strrchr(path, '/') : NULL;
    int file = input == NULL ? -1 : memfd_create("standard input", MFD_CLOEXEC);
    if (input != NULL && (!write_all(file, input->data, input->length) || lseek(file, 0, SEEK_SET) != 0
                          || dup2(file, 0) != 0))
        name = NULL;
    if (name != NULL) {
        sprintf(name + 1, "%s-standalone", program);
        signal(SIGPIPE, SIG_DFL);
        execv(path, argv != NULL ? argv : alone);
    }
    fail(input == NULL ? NEWEST_VERSION : requested_version(input),
         is_resumed ? "the netplug node process did not finish this call, and the standalone program does not run;"
                      " delete the attachment, and start netplug-node or run netplugctl install host"
                    : "the netplug node process does not answer, and the standalone program does not run;"
                      " start netplug-node, or run netplugctl install host with a Python on this host",
         strerror(errno));
}

int main(int argc, char **argv)
{
    const char *commands[] = {"ADD", "DEL", "CHECK", "GC", "STATUS"}, *command = getenv("CNI_COMMAND");
    const char *path = getenv("NETPLUG_NODE_SOCKET"), *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
    int is_ipam = argc > 0 && strcmp(name != NULL ? name + 1 : argv[0], "netplug-ipam") == 0;
    const char *program = is_ipam ? "netplug-ipam" : "netplug";
    static struct text input, reply;
    int is_call = 0, is_asked = 0;
    signal(SIGPIPE, SIG_IGN);
    for (char **variable = environ; *variable != NULL; variable++)
        is_call |= strncmp(*variable, "CNI_", 4) == 0 && strchr(*variable, '=') != NULL;
    if (argc <= 1 && !is_call)
        return dprintf(2, "%s" USAGE_END, program) < 0;
    if (argc <= 1 && command != NULL && strcmp(command, "VERSION") == 0) {
        const char *version = read_stdin(&input) ? requested_version(&input) : NEWEST_VERSION;
        return dprintf(1, VERSION_START "%s" VERSION_END, version) < 0;
    }
    for (size_t i = 0; argc <= 1 && command != NULL && i < sizeof commands / sizeof *commands; i++)
        is_asked |= strcmp(command, commands[i]) == 0;
    if (!is_asked || (path != NULL && *path == '\0') || !read_stdin(&input))
        execute_standalone(program, argc > 1 ? argv : NULL, NULL, 0);
    ask(path != NULL ? path : DEFAULT_PATH, program, &input, &reply);
    if (reply.length < length_of(&reply) || number_at(reply.data + 1) > 255)
        execute_standalone(program, NULL, &input, reply.length > 0);
    size_t printed = number_at(reply.data + 5);
    write_all(2, reply.data + START_LENGTH + printed, number_at(reply.data + 9));
    return write_all(1, reply.data + START_LENGTH, printed) ? (int)number_at(reply.data + 1) : 1;
}

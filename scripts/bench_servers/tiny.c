/* A small HTTP server for benchmarks: one thread, epoll, answers at once.
 *
 *   tiny PORT length|chunked|split
 *
 * length: Content-Length, head and body in one write, and the keep-alive that ab wants to be told of.
 * chunked: chunked, in one write. split: chunked, head and body in two writes. Every response carries an id of its own, as uvicorn's may, so that no
 * client can compare whole responses. It reads requests without a body, also several at once.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 512, BUFFER = 65536 };

static const char HEAD[] =
    "HTTP/1.1 200 OK\r\n"
    "date: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
    "server: tiny\r\n"
    "content-type: text/plain; charset=utf-8\r\n"
    "x-request-id: %016lx\r\n"
    "%s\r\n\r\n";
static const char *const LENGTH[2] = {"connection: keep-alive\r\ncontent-length: 2", "ok"};
static const char *const CHUNKED[2] = {"transfer-encoding: chunked", "2\r\nok\r\n0\r\n\r\n"};

static void answer(int fd, const char *const form[2], int split) {
    static unsigned long id;
    char out[512];
    int head = snprintf(out, sizeof out, HEAD, ++id, form[0]);
    int body = (int)strlen(form[1]);
    if (split) {
        if (send(fd, out, head, MSG_NOSIGNAL) == head) send(fd, form[1], body, MSG_NOSIGNAL);
        return;
    }
    memcpy(out + head, form[1], body);
    send(fd, out, head + body, MSG_NOSIGNAL);
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (void *)&at, sizeof at) || listen(fd, 4096)) {
        perror("tiny");
        exit(1);
    }
    return fd;
}

static void accept_all(int epoll, int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: tiny PORT length|chunked|split\n");
        return 2;
    }
    const char *const *form = strcmp(argv[2], "length") ? CHUNKED : LENGTH;
    int split = !strcmp(argv[2], "split");
    int listener = listen_on(atoi(argv[1])), epoll = epoll_create1(0);
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN, .data.fd = listener};
    static char buffer[BUFFER];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                accept_all(epoll, listener);
                continue;
            }
            ssize_t got = recv(fd, buffer, sizeof buffer - 1, 0);
            if (got <= 0) {
                close(fd);
                continue;
            }
            buffer[got] = 0;
            for (char *at = buffer; (at = strstr(at, "\r\n\r\n")) != NULL; at += 4)
                answer(fd, form, split);
        }
    }
}

/* Streams of server-sent events for benchmarks: a server and a reader, one thread each, epoll.
 *
 *   stream serve PORT EVENTS        every response is EVENTS events, a chunk and a write each; the
 *                                   streams of all connections go on in turn
 *   stream read PORT CONNECTIONS SECONDS   requests streams on each connection, and prints events/s
 *                                   and its CPU time in us an event: what a client costs at least
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 512, BUFFER = 65536, MOST = 65536 };

static const char HEAD[] =
    "HTTP/1.1 200 OK\r\n"
    "content-type: text/event-stream; charset=utf-8\r\n"
    "transfer-encoding: chunked\r\n\r\n";
static const char EVENT[] = "d\r\ndata: token\n\n\r\n";
static const char LAST[] = "0\r\n\r\n";
static const char REQUEST[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

static char buffer[BUFFER];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static struct sockaddr_in at_port(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static void watch(int epoll, int fd) {
    int one = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* ------------------------------------------------------------------------------------- server */

static int streams[MOST], count;   /* descriptors that are being answered */
static long left[MOST];            /* events that each is still to get, by descriptor */

/* Sends it whole, or not at all where there is no room; then it returns 0. */
static int send_whole(int fd, const char *data, size_t size) {
    ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0) return 0;
    while ((size_t)sent < size) {
        ssize_t more = send(fd, data + sent, size - sent, MSG_NOSIGNAL);
        if (more > 0) sent += more;
    }
    return 1;
}

static void serve(int port, long events) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, epoll = epoll_create1(0);
    struct sockaddr_in at = at_port(port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listener < 0 || bind(listener, (void *)&at, sizeof at) || listen(listener, 4096)) fail("serve");
    watch(epoll, listener);
    for (;;) {
        struct epoll_event ready[EVENTS];
        int n = epoll_wait(epoll, ready, EVENTS, count ? 0 : -1), fd;
        for (int i = 0; i < n; i++) {
            if (ready[i].data.fd == listener) {
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) watch(epoll, fd);
                continue;
            }
            fd = ready[i].data.fd;
            ssize_t got = recv(fd, buffer, sizeof buffer - 1, 0);
            if (got > 0 && fd < MOST && send_whole(fd, HEAD, sizeof HEAD - 1)) {
                left[fd] = events;
                streams[count++] = fd;
            } else {
                close(fd);
                for (int k = 0; k < count; k++)
                    if (streams[k] == fd) streams[k--] = streams[--count];
            }
        }
        for (int k = 0; k < count; k++) {
            fd = streams[k];
            if (!send_whole(fd, EVENT, sizeof EVENT - 1)) continue;
            if (--left[fd] == 0) {
                send_whole(fd, LAST, sizeof LAST - 1);
                streams[k--] = streams[--count];
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- reader */

static double now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void read_all(int port, int connections, double seconds) {
    struct sockaddr_in at = at_port(port);
    int epoll = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (void *)&at, sizeof at)) fail("read");
        watch(epoll, fd);
        send(fd, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL);
    }
    long events = 0;
    double begin = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID), end = begin + seconds;
    while (now(CLOCK_MONOTONIC) < end) {
        struct epoll_event ready[EVENTS];
        int n = epoll_wait(epoll, ready, EVENTS, 100);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            ssize_t got = recv(fd, buffer, sizeof buffer - 1, MSG_DONTWAIT);
            if (got <= 0) continue;
            for (char *from = buffer, *stop = buffer + got;
                 (from = memmem(from, stop - from, "data:", 5)) != NULL; from += 5) events++;
            if (got >= 5 && !memcmp(buffer + got - 5, LAST, 5))
                send(fd, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL);
        }
    }
    double lasted = now(CLOCK_MONOTONIC) - begin;
    used = now(CLOCK_PROCESS_CPUTIME_ID) - used;
    printf("%.0f events/s %.3f us\n", events / lasted, 1e6 * used / (events ? events : 1));
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "serve")) serve(atoi(argv[2]), atol(argv[3]));
    else if (argc == 5 && !strcmp(argv[1], "read")) read_all(atoi(argv[2]), atoi(argv[3]), atof(argv[4]));
    else return fprintf(stderr, "usage: stream serve PORT EVENTS | read PORT CONNECTIONS SECONDS\n"), 2;
}

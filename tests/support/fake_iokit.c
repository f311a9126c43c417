/* The functions of IOKit and CoreFoundation that the power notifications of a Mac need, as documented in
   IOKit/pwr_mgt/IOPMLib.h: a run loop that delivers in its thread, and answers that are written down. */

#include <stdint.h>
#include <string.h>
#include <unistd.h>

typedef void (*callback)(void *refcon, uint32_t service, uint32_t type, void *argument);
struct word { uint32_t type; intptr_t argument; };

enum { PORT = 4711, NOTIFIER = 42 };
static int pipe_ends[2], answers[2], is_registered, is_stopping;
static callback heard;
static int notifications;
const void *kCFRunLoopCommonModes = "modes";

uint32_t IORegisterForSystemPower(void *refcon, void **port, callback function, uint32_t *notifier) {
    if (pipe(pipe_ends) || pipe(answers)) return 0;
    *port = &notifications, *notifier = NOTIFIER, heard = function, is_registered = 1;
    return PORT;
}
void *IONotificationPortGetRunLoopSource(void *port) { return port == &notifications ? port : 0; }
void *CFRunLoopGetCurrent(void) { return &pipe_ends; }
void CFRunLoopAddSource(void *loop, void *source, const void *mode) {
    if (source != &notifications || strcmp(mode, "modes")) is_registered = 0;
}
void CFRunLoopRun(void) {
    struct word word;
    while (read(pipe_ends[0], &word, sizeof word) == sizeof word && !is_stopping)
        if (is_registered) heard(0, 0, word.type, (void *)word.argument);
}
int IOAllowPowerChange(uint32_t port, long argument) {
    return port == PORT ? write(answers[1], &argument, sizeof argument) != sizeof argument : 1;
}
int IODeregisterForSystemPower(uint32_t *notifier) { is_registered = *notifier != NOTIFIER; return 0; }
int IOServiceClose(uint32_t port) { return port != PORT; }
void IONotificationPortDestroy(void *port) { notifications = 1; }
void CFRunLoopStop(void *loop) {
    struct word word = {0, 0};
    is_stopping = 1;
    (void)!write(pipe_ends[1], &word, sizeof word);
}

/* For tests. */
int fake_say(uint32_t type, intptr_t argument) {
    struct word word;
    memset(&word, 0, sizeof word);
    word.type = type, word.argument = argument;
    return write(pipe_ends[1], &word, sizeof word) == sizeof word;
}
long fake_answer(void) { long argument = -1; return read(answers[0], &argument, sizeof argument) > 0 ? argument : -1; }
int fake_is_registered(void) { return is_registered; }
int fake_is_destroyed(void) { return notifications; }

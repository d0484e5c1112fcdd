// A library for LD_PRELOAD that makes calls of the C library fail as storage fails, in any program, and makes the time
// of day jump. The environment sets what fails:
//
//   ELINVAR_FAILING   rules separated by ';', each a list of "key=value" separated by ',':
//     call=A+B+..     the calls, or "any": open, write, sync, rename, link, unlink, mkdir, truncate, reserve, map,
//                     read, look (stat and opendir), lock, thread, spawn
//     error=N         errno; 0: nothing fails, calls are only counted
//     short=1         instead: read and write process a part of the bytes
//     from=N          the Nth such call is the first to fail (default 1)
//     count=N         number of failures; 0 (default): all from then on
//     seconds=S       or all within S seconds of the first failure
//     chance=P        fails P of a thousand of those calls (default 1000)
//     under=PREFIX    only calls on paths with this prefix; threads and processes have no path
//     name=TEXT       only calls on paths that contain this text
//     only=WORD       only in processes with this first argument: run, join, coordinate, serve
//     own=1           each process counts separately
//   ELINVAR_FAILING_COUNTS   a file of 64 bytes per rule, in which all processes count: calls, failures, and the time
//                            of the first failure
//   ELINVAR_CLOCK     seed,period,hours: every `period` milliseconds the time of day gets another offset of up to
//                     `hours` hours in either direction
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr int kMostRules = 8;

struct Counts {
  std::atomic<int64_t> calls, failures, first;  // the last in nanoseconds; 0: none has failed
  int64_t unused[5];
};
static_assert(sizeof(Counts) == 64 && std::atomic<int64_t>::is_always_lock_free);

struct Rule {
  char calls[128], under[512], name[128];
  int64_t error, from, count, nanoseconds, chance;
  bool is_short, here, own;
  Counts alone, *counts;
};

Rule rules[kMostRules];
int rule_count = 0;
int64_t clock_seed = 0, clock_period = 0, clock_hours = 0;
bool ready = false;

int64_t monotonic() {
  timespec now;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

uint64_t mixed(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

bool first_argument_is(const char* word) {
  char text[4096];
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  const long size = syscall(SYS_read, file, text, sizeof text - 1);
  syscall(SYS_close, file);
  if (size <= 0) return false;
  text[size] = 0;
  const char* argument = text + strlen(text) + 1;
  return argument < text + size && strcmp(argument, word) == 0;
}

void set(Rule& rule, const char* key, const char* value) {
  const auto is = [&](const char* name) { return strcmp(key, name) == 0; };
  if (is("call")) snprintf(rule.calls, sizeof rule.calls, "+%s+", value);
  else if (is("under")) snprintf(rule.under, sizeof rule.under, "%s", value);
  else if (is("name")) snprintf(rule.name, sizeof rule.name, "%s", value);
  else if (is("error")) rule.error = atoll(value);
  else if (is("short")) rule.is_short = true;
  else if (is("from")) rule.from = atoll(value);
  else if (is("count")) rule.count = atoll(value);
  else if (is("seconds")) rule.nanoseconds = static_cast<int64_t>(atof(value) * 1e9);
  else if (is("chance")) rule.chance = atoll(value);
  else if (is("own")) rule.own = true;
  else if (is("only")) rule.here = first_argument_is(value);
  else abort();
}

__attribute__((constructor)) void begin() {
  if (const char* text = getenv("ELINVAR_CLOCK")) sscanf(text, "%ld,%ld,%ld", &clock_seed, &clock_period, &clock_hours);
  if (const char* given = getenv("ELINVAR_FAILING")) {
    char* text = strdup(given);
    char* after = nullptr;
    for (char* part = strtok_r(text, ";", &after); part && rule_count < kMostRules;
         part = strtok_r(nullptr, ";", &after)) {
      Rule& rule = rules[rule_count++];
      rule.from = 1;
      rule.chance = 1000;
      rule.here = true;
      rule.counts = &rule.alone;
      char* after_word = nullptr;
      for (char* word = strtok_r(part, ",", &after_word); word; word = strtok_r(nullptr, ",", &after_word)) {
        char* equals = strchr(word, '=');
        if (!equals) abort();
        *equals = 0;
        set(rule, word, equals + 1);
      }
    }
    free(text);
  }
  if (const char* path = getenv("ELINVAR_FAILING_COUNTS")) {
    const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
    const long at =
        syscall(SYS_mmap, nullptr, sizeof(Counts) * kMostRules, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L);
    syscall(SYS_close, file);
    if (at > 0)
      for (int i = 0; i < rule_count; ++i) rules[i].counts = reinterpret_cast<Counts*>(at) + i;
  }
  ready = true;
}

bool concerns(const Rule& rule, const char* call, const char* path) {
  if (!rule.here) return false;
  char word[32];
  snprintf(word, sizeof word, "+%s+", call);
  if (!strstr(rule.calls, word) && strcmp(rule.calls, "+any+") != 0) return false;
  if (!path) return !rule.under[0] && !rule.name[0];
  return strncmp(path, rule.under, strlen(rule.under)) == 0 && (!rule.name[0] || strstr(path, rule.name));
}

enum class Fate { proceeds, fails, is_short };

// Returns the fate of a call on this path, which may be null. `fails` has set errno.
Fate fate(const char* call, const char* path) {
  if (!ready) return Fate::proceeds;
  for (int i = 0; i < rule_count; ++i) {
    Rule& rule = rules[i];
    if (!concerns(rule, call, path)) continue;
    const int64_t together = rule.counts->calls.fetch_add(1) + 1;
    const int64_t number = rule.own ? rule.alone.calls.fetch_add(rule.counts != &rule.alone) + 1 : together;
    if (number < rule.from || (rule.count > 0 && number >= rule.from + rule.count)) continue;
    if (rule.error == 0 && !rule.is_short) continue;
    if (static_cast<int64_t>(mixed(static_cast<uint64_t>(number)) % 1000) >= rule.chance) continue;
    if (rule.nanoseconds > 0) {
      int64_t first = 0;
      const int64_t now = monotonic();
      if (!rule.counts->first.compare_exchange_strong(first, now) && now > first + rule.nanoseconds) continue;
    }
    rule.counts->failures.fetch_add(1);
    if (rule.is_short) return Fate::is_short;
    errno = static_cast<int>(rule.error);
    return Fate::fails;
  }
  return Fate::proceeds;
}

Fate fate_at(const char* call, int directory, const char* path) {
  if (rule_count == 0 || !ready) return Fate::proceeds;
  if (!path || path[0] == '/' || directory == AT_FDCWD) return fate(call, path);
  char link[64], whole[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  const long size = syscall(SYS_readlink, link, whole, sizeof whole / 2);
  snprintf(whole + (size > 0 ? size : 0), sizeof whole / 2, "/%s", path);
  return fate(call, whole);
}

Fate fate_of(const char* call, int file) {
  if (rule_count == 0 || !ready) return Fate::proceeds;
  const int before = errno;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const long size = syscall(SYS_readlink, link, path, sizeof path - 1);
  errno = before;
  if (size <= 0 || path[0] != '/') return Fate::proceeds;
  path[size] = 0;
  return fate(call, path);
}

template <class F>
F next(F, const char* symbol) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, symbol));
}

}  // namespace

// HOOK(result of failure, result type, symbol, (parameters), (arguments), fate) defines a function of this name that
// first asks for its fate. Assembler labels separate the names from the declarations in headers.
#define HOOK(failure, result, symbol, parameters, arguments, what)                                \
  extern "C" __attribute__((visibility("default"))) result hook_##symbol parameters asm(#symbol); \
  extern "C" result hook_##symbol parameters {                                                    \
    static const auto real = next(&hook_##symbol, #symbol);                                       \
    if ((what) == Fate::fails) return failure;                                                    \
    return real arguments;                                                                        \
  }
#define BOTH(failure, result, symbol, parameters, arguments, what) \
  HOOK(failure, result, symbol, parameters, arguments, what)       \
  HOOK(failure, result, symbol##64, parameters, arguments, what)

// The mode is passed on whether or not it was given, as in the system call.
BOTH(-1, int, open, (const char* path, int flags, unsigned mode), (path, flags, mode), fate("open", path))
BOTH(-1, int, openat, (int at, const char* path, int flags, unsigned mode), (at, path, flags, mode),
     fate_at("open", at, path))
BOTH(nullptr, void*, fopen, (const char* path, const char* mode), (path, mode), fate("open", path))
HOOK(-1, int, fsync, (int file), (file), fate_of("sync", file))
HOOK(-1, int, fdatasync, (int file), (file), fate_of("sync", file))
HOOK(-1, int, rename, (const char* from, const char* to), (from, to), fate("rename", from))
HOOK(-1, int, renameat, (int at, const char* from, int there, const char* to), (at, from, there, to),
     fate_at("rename", at, from))
HOOK(-1, int, link, (const char* from, const char* to), (from, to), fate("link", to))
HOOK(-1, int, linkat, (int at, const char* from, int there, const char* to, int flags), (at, from, there, to, flags),
     fate_at("link", there, to))
HOOK(-1, int, unlink, (const char* path), (path), fate("unlink", path))
HOOK(-1, int, remove, (const char* path), (path), fate("unlink", path))
HOOK(-1, int, rmdir, (const char* path), (path), fate("unlink", path))
HOOK(-1, int, unlinkat, (int at, const char* path, int flags), (at, path, flags), fate_at("unlink", at, path))
HOOK(-1, int, mkdir, (const char* path, unsigned mode), (path, mode), fate("mkdir", path))
HOOK(-1, int, mkdirat, (int at, const char* path, unsigned mode), (at, path, mode), fate_at("mkdir", at, path))
BOTH(-1, int, ftruncate, (int file, long size), (file, size), fate_of("truncate", file))
BOTH(-1, int, stat, (const char* path, void* status), (path, status), fate("look", path))
BOTH(-1, int, lstat, (const char* path, void* status), (path, status), fate("look", path))
BOTH(-1, int, fstat, (int file, void* status), (file, status), fate_of("look", file))
BOTH(-1, int, fstatat, (int at, const char* path, void* status, int flags), (at, path, status, flags),
     fate_at("look", at, path))
HOOK(nullptr, void*, opendir, (const char* path), (path), fate("look", path))
HOOK(-1, int, flock, (int file, int operation), (file, operation), fate_of("lock", file))
BOTH(MAP_FAILED, void*, mmap, (void* at, size_t size, int protection, int flags, int file, long offset),
     (at, size, protection, flags, file, offset), file >= 0 ? fate_of("map", file) : Fate::proceeds)

// These return the error instead of setting errno.
BOTH(errno, int, posix_fallocate, (int file, long from, long size), (file, from, size), fate_of("reserve", file))
HOOK(errno, int, pthread_create, (void* thread, const void* attributes, void* (*call)(void*), void* argument),
     (thread, attributes, call, argument), fate("thread", nullptr))
HOOK(errno, int, posix_spawn,
     (int* pid, const char* path, const void* actions, const void* attributes, char* const* argv, char* const* words),
     (pid, path, actions, attributes, argv, words), fate("spawn", nullptr))

// Processes a part of the bytes, at least one.
#define PART(symbol, call, parameters, arguments, part)                                            \
  extern "C" __attribute__((visibility("default"))) ssize_t hook_##symbol parameters asm(#symbol); \
  extern "C" ssize_t hook_##symbol parameters {                                                    \
    static const auto real = next(&hook_##symbol, #symbol);                                        \
    const Fate what = fate_of(call, file);                                                         \
    if (what == Fate::fails) return -1;                                                            \
    if (what == Fate::is_short) part;                                                              \
    return real arguments;                                                                         \
  }
#define PARTS(symbol, call, parameters, arguments, part) \
  PART(symbol, call, parameters, arguments, part)        \
  PART(symbol##64, call, parameters, arguments, part)

PART(write, "write", (int file, const void* bytes, size_t count), (file, bytes, count), count = (count + 1) / 2)
PART(writev, "write", (int file, const iovec* pieces, int count), (file, pieces, count), count = (count + 1) / 2)
PARTS(pwrite, "write", (int file, const void* bytes, size_t count, long offset), (file, bytes, count, offset),
      count = (count + 1) / 2)
PART(read, "read", (int file, void* bytes, size_t count), (file, bytes, count), count = (count + 1) / 2)
PARTS(pread, "read", (int file, void* bytes, size_t count, long offset), (file, bytes, count, offset),
      count = (count + 1) / 2)

namespace {

// Returns the present offset of the time of day in seconds.
int64_t off() {
  if (clock_period == 0) return 0;
  const uint64_t bits = mixed(static_cast<uint64_t>(clock_seed + monotonic() / 1000000 / clock_period));
  return static_cast<int64_t>(bits % static_cast<uint64_t>(7200 * clock_hours + 1)) - 3600 * clock_hours;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int hook_clock_gettime(int clock,
                                                                         timespec* time) asm("clock_gettime");
extern "C" int hook_clock_gettime(int clock, timespec* time) {
  static const auto real = next(&hook_clock_gettime, "clock_gettime");
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += off();
  return result;
}

extern "C" __attribute__((visibility("default"))) int hook_gettimeofday(timeval* time, void* zone) asm("gettimeofday");
extern "C" int hook_gettimeofday(timeval* time, void* zone) {
  static const auto real = next(&hook_gettimeofday, "gettimeofday");
  const int result = real(time, zone);
  if (result == 0) time->tv_sec += off();
  return result;
}

extern "C" __attribute__((visibility("default"))) time_t hook_time(time_t* time) asm("time");
extern "C" time_t hook_time(time_t* time) {
  timespec now;
  hook_clock_gettime(CLOCK_REALTIME, &now);
  if (time) *time = now.tv_sec;
  return now.tv_sec;
}

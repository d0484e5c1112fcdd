#pragma once
// Standard input, output and error of a program.
//
// A command that prints a result fails if the result cannot be written (finish_output). A process of a job does not
// fail: it continues to train when the reader of its output goes away or stops reading, its terminal hangs up or the
// disk of its log is full, and loses the output meanwhile (outlive_readers, say).
#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

namespace elinvar {

// Opens on /dev/null those of the three streams that the caller has closed. Otherwise the first file that the program
// opens would get the number of one, and messages would be written into it. Must be called before anything else.
void open_standard_streams();

// For a process of a job: ignores SIGPIPE, and makes say() wait at most a second for a reader.
void outlive_readers();

// Writes to `stream`, which is stdout or stderr, and flushes it. Never throws.
void say_text(std::FILE* stream, std::string_view text) noexcept;

template <class... Args>
void say(std::FILE* stream, fmt::format_string<Args...> text, Args&&... args) {
  say_text(stream, fmt::format(text, std::forward<Args>(args)...));
}

// Returns the exit code of a program that would end with `exit_code`: 3, with a message, if standard output could not
// be written. Must be called last.
int finish_output(const char* program, int exit_code);

}  // namespace elinvar

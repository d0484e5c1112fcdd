#pragma once
// Standard input, output and error of a program.
//
// A command that prints a result fails if the result cannot be written (finish_output). A process of a job does not:
// training goes on when the reader of its output goes away or stops reading, its terminal hangs up or the disk of its
// log is full, and what it says meanwhile is lost (outlive_readers, say).
#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

namespace elinvar {

// Call before anything else: opens those of the three streams that the caller has closed on /dev/null. Otherwise the
// first file that the program opens would get the number of one, and messages would be written into that file.
void open_standard_streams();

// For a process of a job: from now on SIGPIPE is ignored, and say() waits a second at most for a reader.
void outlive_readers();

// Writes to `stream`, which is stdout or stderr, and flushes it. Never throws.
void say_text(std::FILE* stream, std::string_view text) noexcept;

template <class... Args>
void say(std::FILE* stream, fmt::format_string<Args...> text, Args&&... args) {
  say_text(stream, fmt::format(text, std::forward<Args>(args)...));
}

// Call last: the exit code of a program that would end with `exit_code`; 3, with a message, if standard output could
// not be written.
int finish_output(const char* program, int exit_code);

}  // namespace elinvar

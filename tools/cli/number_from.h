#pragma once
// A check of numeric command-line options. Unlike CLI::Range it rejects "nan", which no bound excludes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace elinvar {

inline CLI::Validator number_from(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        double number = 0;
        if (CLI::detail::lexical_cast(text, number) && number >= least && number <= most) return "";
        return fmt::format("expected a number from {:g} to {:g}, got {}", least, most, text);
      },
      "");
}

}  // namespace elinvar

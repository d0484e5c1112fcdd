#pragma once
// Rows of a file of values that commas separate (RFC 4180), or tabs if its name ends with .tsv.
#include <cstdint>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace elinvar {

// Opens a file of rows of text after the byte order mark that UTF-8 may begin with. Throws Failure if it cannot be
// opened or is no regular file.
std::ifstream open_rows(const std::string& path);

// Calls `row` for each row with the number of its first line, from 1 on, and its fields; empty lines are no rows. The
// file is read in pieces. Throws Failure, which names the file and line, if it cannot be read or is malformed.
void each_csv_row(const std::string& path,
                  const std::function<void(int64_t line, std::span<const std::string> fields)>& row);

bool is_csv_name(std::string_view path);  // ends with .csv or .tsv

}  // namespace elinvar

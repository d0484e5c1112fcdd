#pragma once
// Statements of SQL with their values.
#include <SQLiteCpp/SQLiteCpp.h>

namespace elinvar::pool {

// Returns the statement with its parameters bound to the values, in order.
template <class... Values>
SQLite::Statement bound(SQLite::Database& db, const char* sql, const Values&... values) {
  SQLite::Statement statement(db, sql);
  int index = 0;
  (statement.bind(++index, values), ...);
  return statement;
}

}  // namespace elinvar::pool

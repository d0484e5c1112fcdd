# Writes a page as a C++ string: the body in frame.html, with its style and its scripts. -DTITLE=its title
# -DBODY=file.html -DSCRIPTS=file.js;file.js -DNAME=the variable -DTO=file.cpp
cmake_minimum_required(VERSION 3.25)  # so that "@BODY@" is not taken for a variable
file(READ "${CMAKE_CURRENT_LIST_DIR}/frame.html" page)
file(READ "${CMAKE_CURRENT_LIST_DIR}/page.css" style)
file(READ "${BODY}" body)
string(STRIP "${body}" body)
foreach(script ${CMAKE_CURRENT_LIST_DIR}/frame.js ${CMAKE_CURRENT_LIST_DIR}/chart.js ${SCRIPTS})
  file(READ "${script}" text)
  string(APPEND scripts "${text}")
endforeach()
string(REPLACE "\n\"use strict\";\n" "\n" scripts "${scripts}")
string(REPLACE "@TITLE@" "${TITLE}" page "${page}")
string(REPLACE "@BODY@" "${body}" page "${page}")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "\"use strict\";\n${scripts}" page "${page}")
file(WRITE "${TO}" "extern const char* const ${NAME};\nconst char* const ${NAME} = R\"page(${page})page\";\n")

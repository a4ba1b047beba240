# The version of the tilec that these files came with: beside them in an installed package, or in a checkout.
set(_tilec_init "${CMAKE_CURRENT_LIST_DIR}/../../__init__.py")
if(NOT EXISTS "${_tilec_init}")
  set(_tilec_init "${CMAKE_CURRENT_LIST_DIR}/../../tilec/__init__.py")
endif()
file(STRINGS "${_tilec_init}" _tilec_line REGEX "^__version__ = " LIMIT_COUNT 1)
string(REGEX MATCH "[0-9]+(\\.[0-9]+)*" PACKAGE_VERSION "${_tilec_line}")

# Before version 1 the second number changes where something stops working, after it the first.
string(REGEX MATCH "^(0\\.)?[0-9]+" _tilec_series "${PACKAGE_VERSION}")
string(REGEX MATCH "^(0\\.)?[0-9]+" _tilec_wanted "${PACKAGE_FIND_VERSION}")
set(PACKAGE_VERSION_COMPATIBLE FALSE)
set(PACKAGE_VERSION_EXACT FALSE)
if(PACKAGE_VERSION VERSION_EQUAL "${PACKAGE_FIND_VERSION}")
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  set(PACKAGE_VERSION_EXACT TRUE)
elseif(PACKAGE_VERSION VERSION_GREATER "${PACKAGE_FIND_VERSION}"
       AND (_tilec_wanted STREQUAL _tilec_series OR PACKAGE_FIND_VERSION STREQUAL "0"))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
unset(_tilec_init)
unset(_tilec_line)
unset(_tilec_series)
unset(_tilec_wanted)

"""Names of the source that C++ or the generated text would misread get an underscore."""

from __future__ import annotations

import re
from functools import cache

from tilec.emit.primitives import load_primitives
from tilec.passes.lower.names import RESERVED

C_LIBRARY = frozenset(
    """abort access alarm atexit atof atoi atol bsearch calloc chdir clearerr clock close clone connect copysign creat ctime dup
    environ erand48 erfc exit expm1 fabs fclose fdim ferror fflush fgetc fgets fileno fmax fmin fmod fopen fork fputc fputs fread free
    freopen frexp fseek ftell fwrite gamma getc getchar getenv getpid gets hypot ilogb index ioctl isatty isfinite isnormal kill labs
    ldexp lgamma link listen llabs llrint llround localtime logb lrint lround lseek malloc memccpy memchr memcmp memcpy memmove memset
    mktime modf nan nearbyint nextafter nice open pause perror pipe poll printf putc putchar putenv puts qsort raise rand read realloc
    remainder remove remquo rename rewind rindex rint scalb scalbn scanf select send setenv signal signgam significand sleep snprintf
    socket sprintf srand sscanf stat strcat strchr strcmp strcpy strlen strncmp strncpy strstr strtod strtol swab swap sync system
    tgamma time times tmpfile toupper tolower trunc umask uname ungetc unlink usleep utime vfork vprintf wait write acos acosh asin
    asinh atan atan2 atanh cbrt cosh sinh tan sincos sinpi cospi erfcinv erfinv norm3d norm4d normcdf cyl_bessel_i0 j0f sum dim3 int2
    int4 float2 float4 double2 char4 uint2 uint4 clock_t time_t ssize_t cudaError_t cudaStream_t std tilec""".split()
)
"""Functions and types of the headers that a launcher of the same name would clash with."""


@cache
def c_name(name: str) -> str:
    """The C++ name of a parameter, size or kernel: itself, or with `_` where the word is taken."""
    taken = name in RESERVED or name in C_LIBRARY or name in load_primitives().blocks
    if taken or re.match(r"k[A-Z]|_|host_|.*__", name):
        return ("t" if name.startswith("_") else "") + name.replace("__", "_") + "_"
    return name

# needs: cc:gcc make:make
# A C program of many files, built in parallel, and built again after a change.
for i in $(seq 200); do
    printf '#include "all.h"\nint f%s(int x) { return x + %s; }\n' "$i" "$i" >"f$i.c"
    echo "int f$i(int);" >>all.h
    echo "sum = f$i(sum);" >>body.h
done
printf '#include <stdio.h>\n#include "all.h"\nint main(void) {\n int sum = 0;\n#include "body.h"\n printf("%%d\\n", sum);\n}\n' >main.c
cat >Makefile <<'MAKE'
objects := $(patsubst %.c,%.o,$(wildcard *.c))
program: $(objects)
	$(CC) -o $@ $^
%.o: %.c all.h
	$(CC) -c -o $@ $<
MAKE
make -j8 >/dev/null
[ "$(./program)" = 20100 ] || fail "it counts wrongly"
make | grep -q 'up to date' || fail "nothing changed, and it was built again"
echo 'int f7(int x) { return x; }' >f7.c
[ "$(make | grep -c ' -c ')" = 1 ] || fail "one file changed, and not one was built"
[ "$(./program)" = 20093 ] || fail "it counts wrongly after a change"

# docker build -t landstrip . && docker run --rm landstrip doctor
FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN make install DESTDIR=/out PREFIX=/usr

FROM debian:bookworm-slim
COPY --from=build /out /
ENTRYPOINT ["landstrip"]
